"""Which graphs flow and vocoder of a model directory have, by the networks of its generation or
decoder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.generations.separate_decoder import token2wav_networks
from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.causal.weights import NETWORK as CAUSAL
from services.token2wav.vocoder.causal.weights import read_config as read_causal_config
from services.token2wav.vocoder.causal.weights import read_weights as read_causal_weights
from services.token2wav.vocoder.weights import VocoderConfig, load_weights, read_config
from tools.model.graphs.causal_vocoder_graph import CausalFilterGraph, CausalPitchGraph
from tools.model.graphs.chunks.encoder_chunk_graph import EncoderChunkGraph
from tools.model.graphs.chunks.step_dit_graph import StepDitGraph
from tools.model.graphs.dit_graph import DitGraph, LookAheadGraph
from tools.model.graphs.encoder_graph import EncoderGraph
from tools.model.graphs.estimator_graph import EstimatorGraph
from tools.model.graphs.graph import Array
from tools.model.graphs.velocity_graph import VelocityGraph
from tools.model.graphs.vocoder_graph import FilterGraph, PitchGraph

Graphs = TypeVar("Graphs")


@dataclass(frozen=True)
class FlowGraphs:
    """encoder: what makes mu; estimator: what makes velocities."""

    encoder: type[EncoderGraph] | type[LookAheadGraph]
    estimator: type[VelocityGraph] | type[StepDitGraph]


@dataclass(frozen=True)
class VocoderGraphs:
    """pitch: what makes f0; filter: what makes samples; and the reading of their weights."""

    pitch: type[PitchGraph]
    filter: type[FilterGraph]
    read_config: Callable[[ModelDirectory], VocoderConfig]
    read_weights: Callable[[ModelDirectory, Any], dict[str, Tensor]]

    def weights(self, directory: ModelDirectory) -> tuple[dict[str, Array], VocoderConfig]:
        """All tensors of `hift.pt`, float32, weight norm fused. Raises ModelError naming file and
        tensor.
        """
        config = self.read_config(directory)
        return {name: tensor.float().numpy() for name, tensor in self.read_weights(directory, config).items()}, config


_FLOWS: Mapping[str, FlowGraphs] = {
    "conformer-unet": FlowGraphs(EncoderGraph, EstimatorGraph),
    "dit": FlowGraphs(LookAheadGraph, DitGraph),
    "conformer-dit": FlowGraphs(EncoderChunkGraph, StepDitGraph),
}
_VOCODERS: Mapping[str, VocoderGraphs] = {
    "hift": VocoderGraphs(PitchGraph, FilterGraph, read_config, load_weights),
    CAUSAL: VocoderGraphs(CausalPitchGraph, CausalFilterGraph, read_causal_config, read_causal_weights),
}


def flow_graphs(directory: ModelDirectory) -> FlowGraphs:
    """Raises ModelError for a network without graphs."""
    return _known("flow", token2wav_networks(directory).flow_network, _FLOWS, directory)


def vocoder_graphs(directory: ModelDirectory) -> VocoderGraphs:
    """Raises ModelError for a network without graphs."""
    return _known("vocoder", token2wav_networks(directory).vocoder_network, _VOCODERS, directory)


def _known(part: str, name: str, graphs: Mapping[str, Graphs], directory: ModelDirectory) -> Graphs:
    if name not in graphs:
        raise ModelError(
            f"{directory.path}: the {part}'s network {name!r} has no graphs; there are {', '.join(graphs)}"
        )
    return graphs[name]
