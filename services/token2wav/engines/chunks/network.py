"""The network of Step-Audio2's flow by engines: what `Flow` asks of it, from state that it keeps
for its streams, so that every decoder over a flow serves it unchanged.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.errors import InternalFault
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_FRAMES_PER_TOKEN
from services.token2wav.decoders.backend import Decoders, EngineSettings
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.kept_hops import KeptHopsDecoder
from services.token2wav.decoders.whole_hop import WholeHopDecoder
from services.token2wav.engines.chunks.inputs import added, fill_kept, fill_lengths, positions
from services.token2wav.engines.chunks.shapes import (
    Block,
    encoder_outputs,
    encoder_shapes,
    estimator_outputs,
    estimator_shapes,
    most_streams,
)
from services.token2wav.engines.runtime import Engine
from services.token2wav.engines.slots import Slots, filled
from services.token2wav.flow.attention import Mask
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.flow.past import PROMPT_AND_NEWEST, REFERENCE_CUT
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.step_dit.estimator import StepDitEstimator
from services.token2wav.flow.step_dit.weights import StepDitConfig, read_flow_tensors
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.inputs.request import Profile
from services.token2wav.vocoder.vocoder import Vocoder


class ChunkEstimator:
    """See `VelocityEstimator`. times: the readable estimator, which computes the modulations by
    time; dropped by `forget_times`. streams: most in a call.
    """

    dtype = torch.float32
    """Of the state that is kept, whatever the products are in."""

    def __init__(
        self, config: StepDitConfig, engine: Engine, times: StepDitEstimator, slots: Slots, streams: int
    ) -> None:
        self._config, self._engine, self._times, self._slots, self._streams = config, engine, times, slots, streams

    def time_embedding(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> [rows, width]."""
        return self._times.time_embedding(t)

    def times(self, embedding: Tensor) -> list[Tensor]:
        """All modulations side by side, from the embedding [1, width]."""
        return [torch.cat(self._times.times(embedding), dim=2)]

    def forget_times(self) -> None:
        """Free the readable estimator, all of whose other weights are in the graph."""
        del self._times

    def velocity(self, inputs: Tensor, times: Sequence[Tensor], cache: CachedPass, mask: Mask | None = None) -> Tensor:
        """See `VelocityEstimator`; takes no mask, since every call is one block."""
        if mask is not None:
            raise InternalFault("the exported flow of Step-Audio2 takes blocks, and no mask over them")
        frames, pasts = inputs.shape[1], cache.pasts
        made = []
        longest = max(past.frames for past in pasts) // MEL_FRAMES_PER_TOKEN
        most = most_streams(frames // MEL_FRAMES_PER_TOKEN, longest, self._streams)
        for members in _batches(len(pasts), most):
            rows = slice(ROWS * members[0], ROWS * (members[-1] + 1))
            made.append(self._call(inputs[rows], times[0], cache, members))
        return made[0] if len(made) == 1 else torch.cat(made)

    def _call(self, inputs: Tensor, times: Tensor, cache: CachedPass, members: Sequence[int]) -> Tensor:
        frames, pasts = inputs.shape[1], [cache.pasts[at] for at in members]
        kept = [past.frames for past in pasts]
        block = Block.of(len(pasts), frames // MEL_FRAMES_PER_TOKEN, max(kept) // MEL_FRAMES_PER_TOKEN)
        with self._slots.lease() as slot:
            bound = slot.at(self._engine, estimator_shapes(block, self._config), estimator_outputs(block, self._config))
            given, made = bound.inputs, bound.outputs
            given["inputs"][:, :frames].copy_(inputs, non_blocking=True)
            given["inputs"][:, frames:].zero_()
            given["times"].copy_(times, non_blocking=True)
            fill_kept(given, "", ROWS, pasts, 0)
            fill_lengths(given, "", ROWS, kept, frames)
            bound.run()
            for row, at in enumerate(members):
                keys_values, columns = added(made, "", ROWS, row, frames)
                cache.store(at, (columns,), (keys_values,))
            return made["velocity"][:, :frames].clone()


class ChunkNetwork:
    """See `FlowNetwork`. engines: `encoder` and `estimator`. speaker: linear map of the voice's
    embedding.
    """

    def __init__(
        self,
        config: StepDitConfig,
        engines: Mapping[str, Engine],
        speaker: Linear,
        times: StepDitEstimator,
        slots: Slots,
        streams: int,
    ) -> None:
        self._config, self._encoder, self._speaker = config, engines["encoder"], speaker
        self._slots, self._streams = slots, streams
        self.estimator = ChunkEstimator(config, engines["estimator"], times, slots, streams)

    def speaker(self, embedding: Tensor) -> Tensor:
        """See `FlowNetwork`."""
        return self._speaker(F.normalize(embedding, dim=-1))

    def mu(
        self, ids: Tensor, ahead: Tensor, known: Tensor, before: list[int], cache: CachedPass, *, chunked: bool = False
    ) -> Tensor:
        """See `FlowNetwork`; `chunked` is for flows whose prompt is on the grid."""
        if chunked:
            raise InternalFault("the exported flow of Step-Audio2 takes blocks, and no mask over them")
        most = most_streams(ids.shape[1], max(before), self._streams)
        made = []
        for members in _batches(len(before), most):
            rows = slice(members[0], members[-1] + 1)
            made.append(self._call(ids[rows], ahead[rows], known[rows], before, cache, members))
        return made[0] if len(made) == 1 else torch.cat(made)

    def _call(
        self,
        ids: Tensor,
        ahead: Tensor,
        known: Tensor,
        before: Sequence[int],
        cache: CachedPass,
        members: Sequence[int],
    ) -> Tensor:
        count, tokens = ids.shape
        pasts, kept = [cache.pasts[at] for at in members], [before[at] for at in members]
        block = Block.of(count, tokens, max(kept))
        frames, width = MEL_FRAMES_PER_TOKEN * tokens, self._config.encoder_width
        with self._slots.lease() as slot:
            bound = slot.at(self._encoder, encoder_shapes(block, self._config), encoder_outputs(block, self._config))
            given, made = bound.inputs, bound.outputs
            for name, block_part, ahead_part in (("tokens", ids, ahead), ("known", torch.ones_like(ids), known)):
                joined = torch.cat((block_part, ahead_part.to(ids.dtype)), dim=1)
                given[name][:, : joined.shape[1]].copy_(joined)
                given[name][:, joined.shape[1] :].zero_()
            filled(
                given,
                {
                    "positions": positions(block.past + block.tokens, block.tokens, width),
                    "positions_frames": positions(block.past_frames + block.frames, block.frames, width),
                },
            )
            for at, (suffix, columns, kept_columns) in enumerate(
                (("", tokens, kept), ("_frames", frames, [MEL_FRAMES_PER_TOKEN * length for length in kept]))
            ):
                fill_kept(given, suffix, 1, pasts, at)
                fill_lengths(given, suffix, 1, kept_columns, columns)
            bound.run()
            for row, member in enumerate(members):
                parts = [added(made, suffix, 1, row, length) for suffix, length in (("", tokens), ("_frames", frames))]
                cache.store(member, [columns for _, columns in parts], [keys_values for keys_values, _ in parts])
            return made["mu"][:, :frames].clone()


def _batches(count: int, most: int) -> Iterator[range]:
    return (range(first, min(first + most, count)) for first in range(0, count, most))


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
