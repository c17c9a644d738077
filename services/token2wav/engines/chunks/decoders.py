"""The three profiles over a flow whose network is in engines and whose state is kept: those of the
torch backend, with another network.
"""

from collections.abc import Mapping

import torch

from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import Decoders, EngineSettings
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.kept_hops import KeptHopsDecoder
from services.token2wav.decoders.whole_hop import WholeHopDecoder
from services.token2wav.engines.chunks.network import ChunkNetwork
from services.token2wav.engines.runtime import Engine
from services.token2wav.engines.slots import Slots
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.flow.past import PROMPT_AND_NEWEST, REFERENCE_CUT
from services.token2wav.flow.step_dit.estimator import StepDitEstimator
from services.token2wav.flow.step_dit.weights import StepDitConfig, read_flow_tensors
from services.token2wav.inputs.request import Profile
from services.token2wav.vocoder.vocoder import Vocoder


def chunk_flow(
    directory: ModelDirectory,
    config: StepDitConfig,
    engines: Mapping[str, Engine],
    slots: Slots,
    device: torch.device,
    streams: int,
) -> Flow:
    """The flow over `encoder` and `estimator`; streams: most in a call. Raises ModelError naming a
    tensor of `flow.pt`.
    """
    tensors = Tensors(read_flow_tensors(directory, config, device, torch.float32))
    network = ChunkNetwork(
        config,
        engines,
        Linear.of(tensors.within("spk_embed_affine_layer")),
        StepDitEstimator(tensors.within(ESTIMATOR[:-1]), config),
        slots,
        streams,
    )
    flow = Flow(config, network, device, PROMPT_AND_NEWEST)
    # The solver has computed them for all its steps.
    network.estimator.forget_times()
    return flow


def chunk_decoders(flow: Flow, vocoder: Vocoder, settings: EngineSettings, streams: int) -> Decoders:
    """By profile; all of them are exact under the same masks as the torch backend's."""
    return {
        Profile.CONTINUOUS: ContinuousDecoder(
            flow, vocoder, widest_step=streams, prompt_cache_bytes=settings.prompt_cache_bytes
        ),
        Profile.UPSTREAM: KeptHopsDecoder(flow, vocoder, REFERENCE_CUT),
        Profile.OFFLINE: WholeHopDecoder(flow, vocoder),
    }
