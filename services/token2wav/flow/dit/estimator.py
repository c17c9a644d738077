"""Causal estimator of the flow's velocity, a diffusion transformer (DiT; compatibility
specification of CosyVoice3, sections 4.3 and 4.4).

Everything in it is strictly causal except the attention, so under streaming masks a block of frames
needs no mask: it sees its own frames and all before it.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.attention import Mask
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.dit.block import Block, ModulatedEstimator, Rotation, modulated
from services.token2wav.flow.dit.weights import FREQUENCIES, DitConfig
from services.token2wav.flow.layers import Convolution, Linear, LookAhead, Tensors, TimeEmbedding, mish, ordered
from services.token2wav.flow.stream_cache import CachedPass

FRAMES_AT_ONCE = 500
"""A frame takes 31 times its memory while it is convolved: for a sentence of two minutes as a whole
that would be 1.5 GB with the published sizes.
"""


class GroupedConvolution:
    """A convolution in groups of channels as one matrix product for each group, [rows, time + taps
    - 1, channels] -> [rows, time, channels]. A longer pass than `FRAMES_AT_ONCE` is computed in
    pieces.

    Full float32 on a GPU, where convolutions default to TF32.
    """

    def __init__(self, convolution: Convolution) -> None:
        out, group, _ = convolution.weight.shape
        self.reach, self._groups = convolution.reach, out // group
        by_group = convolution.weight.unflatten(0, (self._groups, group))  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._matrix = by_group.permute(0, 3, 2, 1).flatten(1, 2).contiguous()
        self._bias = convolution.bias.view(self._groups, 1, group)

    def __call__(self, x: Tensor) -> Tensor:
        firsts = range(0, max(x.shape[1] - self.reach, 1), FRAMES_AT_ONCE)
        pieces = [self._piece(x[:, first : first + FRAMES_AT_ONCE + self.reach]) for first in firsts]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def _piece(self, x: Tensor) -> Tensor:
        rows, time, channels = x.shape
        # [rows, time, channels, taps] -> [groups, rows * time, taps * channels of the group].
        taps = x.unfold(1, self.reach + 1, 1).view(rows, time - self.reach, self._groups, -1, self.reach + 1)
        seen = taps.permute(2, 0, 1, 4, 3).reshape(self._groups, rows * (time - self.reach), -1)
        made = torch.baddbmm(self._bias, seen, self._matrix)
        return made.transpose(0, 1).reshape(rows, time - self.reach, channels)


class InputEmbedding:
    """What goes into the first block: the joined inputs, and their position by two causal
    convolutions (compatibility specification of CosyVoice3, section 4.3).

    Weights only; the convolutions' past is in the cached pass.
    """

    def __init__(self, tensors: Tensors) -> None:
        project = tensors.within("proj")
        # The checkpoint's order is x, condition, mu, speaker; the solver's has the condition last.
        x, condition, mu, speaker = project["weight"].chunk(4, dim=1)
        self.project = Linear(ordered(torch.cat((x, mu, speaker, condition), dim=1)), project["bias"])
        self._convolutions = [
            GroupedConvolution(Convolution.of(tensors.within(f"conv_pos_embed.conv{at}.0"))) for at in (1, 2)
        ]

    def __call__(self, inputs: Tensor, cache: CachedPass) -> Tensor:
        """inputs [rows, time, 320]: x, mu, speaker, condition -> [rows, time, width]."""
        projected = self.project(inputs)
        *_, position = self.positions(projected, cache)
        return position + projected

    def positions(self, projected: Tensor, cache: CachedPass) -> list[Tensor]:
        """After each convolution and its Mish. In front of a stream are zeros for both, not what
        the first one makes of zeros.
        """
        made, x = [], projected
        for convolution in self._convolutions:
            x = mish(convolution(cache.before(x, convolution.reach)))
            made.append(x)
        return made


class DitEstimator(ModulatedEstimator[Block]):
    """See `VelocityEstimator`. Most of the time's contribution is its weights: with the published
    sizes 142 of 331 million, 563 MB in float32, which `velocity` does not touch.
    """

    def __init__(self, tensors: Tensors, config: DitConfig) -> None:
        self._time = TimeEmbedding(*(Linear.of(tensors.within(f"time_embed.time_mlp.{at}")) for at in (0, 2)))
        self.inputs = InputEmbedding(tensors.within("input_embed"))
        self._frequencies = tensors[FREQUENCIES]
        self.blocks = [Block(tensors.within(f"transformer_blocks.{at}"), config.heads) for at in range(config.depth)]
        self._last_modulation = Linear.of(tensors.within("norm_out.linear"))
        self._project = Linear.of(tensors.within("proj_out"))

    def rotation(self, frames: int, cache: CachedPass) -> Rotation:
        """Of the next `frames` frames of each stream."""
        return Rotation(cache.places(frames, self._frequencies.device), self._frequencies)

    def velocity(self, inputs: Tensor, times: Sequence[Tensor], cache: CachedPass, mask: Mask | None = None) -> Tensor:
        """inputs [rows, frames, 320]: x, mu, speaker, condition side by side -> [rows, frames, 80].
        Padded frames hold values without a meaning.
        """
        *modulations, last = times
        rotation = self.rotation(inputs.shape[1], cache)
        x = self.inputs(inputs, cache)
        for block, modulation in zip(self.blocks, modulations, strict=True):
            x = block(x, modulation, rotation, cache, mask)
        return self._project(self.last_norm(x, last))

    @staticmethod
    def last_norm(x: Tensor, time: Tensor) -> Tensor:
        """x [rows, frames, width] in front of the last map. Here the scale comes first."""
        scale, shift = time.chunk(2, dim=2)
        return modulated(x, shift, scale)


class DitNetwork:
    """See `FlowNetwork`: the estimator and the maps in front of it (compatibility specification of
    CosyVoice3, sections 4.1 and 4.2).
    """

    def __init__(self, config: DitConfig, tensors: Mapping[str, Tensor]) -> None:
        weights = Tensors(tensors)
        self.look_ahead = LookAhead(weights.within("pre_lookahead_layer"))
        self.estimator = DitEstimator(weights.within(ESTIMATOR[:-1]), config)
        self._tokens = weights["input_embedding.weight"]
        # In the file's memory order, whose sums round as the reference's do.
        self._speaker = Linear(*(weights[f"spk_embed_affine_layer.{kind}"] for kind in ("weight", "bias")))

    def speaker(self, embedding: Tensor) -> Tensor:
        """float32 [..., 192] of any non-zero length -> [..., 80]: the embedding at unit length,
        projected.
        """
        return self._speaker(F.normalize(embedding, dim=-1))

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids [..., n] -> float32 [..., n, 80]."""
        return F.embedding(ids, self._tokens)

    def mu(
        self, ids: Tensor, ahead: Tensor, known: Tensor, before: list[int], cache: CachedPass, *, chunked: bool = False
    ) -> Tensor:
        """Token ids [rows, n] and their look-ahead [rows, 3], of which bool `known` [rows, 3]
        exists -> float32 [rows, 2n, 80].

        What a token becomes depends on the two tokens in front of it and the three behind it, so
        `before` and `chunked`, which place attention, change nothing.
        """
        seen = self.embed(ahead) * known[:, :, None]
        return self.look_ahead(self.embed(ids), seen, cache).repeat_interleave(MEL_FRAMES_PER_TOKEN, dim=1)
