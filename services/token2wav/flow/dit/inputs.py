"""What goes into the first block of the DiT: the joined inputs, and their position by two causal
convolutions (compatibility specification of CosyVoice3, section 4.3).
"""

import torch
from torch import Tensor

from services.token2wav.flow.layers import Convolution, Linear, Tensors, mish, ordered
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
    """Weights only; the convolutions' past is in the cached pass."""

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
