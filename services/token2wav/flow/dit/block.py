"""A block of the DiT: attention and feed-forward behind norms that the time scales and shifts
(compatibility specification of CosyVoice3, section 4.4).

Peebles and Xie, "Scalable Diffusion Models with Transformers", ICCV 2023.
"""

from typing import Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.attention import Mask, attend, real_frames, split_heads
from services.token2wav.flow.dit.weights import BLOCK_MODULATIONS
from services.token2wav.flow.layers import Linear, Tensors, TimedEstimator
from services.token2wav.flow.stream_cache import CachedPass

_EPSILON = 1e-6


class Rotation:
    """Rotary positions of a block's queries and keys (compatibility specification of CosyVoice3,
    section 4.4): Su et al., "RoFormer", 2021. Only the first head is rotated, because the reference
    rotates before it splits the heads; the weights were trained so.

    places: int64 [rows or 1, time], counted from the first
    prompt frame; frequencies: float32 [pairs], radians a frame.
    """

    def __init__(self, places: Tensor, frequencies: Tensor) -> None:
        self.angles = places[:, :, None] * frequencies
        self._cosine, self._sine = self.angles.cos(), self.angles.sin()

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., rows, time, 2 * pairs] with neighbouring channels as pairs -> the same shape."""
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        turned = (even * self._cosine - odd * self._sine, odd * self._cosine + even * self._sine)
        return torch.stack(turned, dim=-1).flatten(-2)

    def of_first_head(self, heads: Tensor) -> Tensor:
        """Queries, keys and values, [3, rows, heads, time, width]: turn the first head of queries
        and keys, in place; returns the argument.
        """
        first = heads[:2, :, 0]
        first.copy_(self(first))
        return heads


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Layer norm without weights, scaled and shifted. x [rows, time, width]; shift, scale [rows or
    1, 1, width].
    """
    return F.layer_norm(x, x.shape[-1:], eps=_EPSILON) * (1 + scale) + shift


class ModulatedBlock:
    """What the blocks of diffusion transformers share: modulations from the time, and the
    feed-forward.
    """

    _modulation: Linear
    _widen: Linear
    _narrow: Linear

    def time(self, embedding: Tensor) -> Tensor:
        """Shift, scale and gate of each part of the block: embedding [rows or 1, width] -> [rows or
        1, 1, modulations * width].
        """
        return self._modulation(F.silu(embedding))[:, None]

    def forget_time(self) -> None:
        """Free the weights of `time`, which cannot be called any more."""
        del self._modulation

    def feed_forward(self, x: Tensor) -> Tensor:
        """x [rows, frames, width] -> the same shape."""
        return self._narrow(F.gelu(self._widen(x), approximate="tanh"))


B = TypeVar("B", bound=ModulatedBlock)


class ModulatedEstimator(TimedEstimator, Generic[B]):
    """An estimator whose blocks, and its last norm, the time scales and shifts."""

    blocks: list[B]
    _last_modulation: Linear

    def times(self, embedding: Tensor) -> list[Tensor]:
        """The modulations of each block, and of the last norm, scale and shift in the order of its
        generation [rows or 1, 1, 2 * width], from the embedding [rows or 1, width].
        """
        last = self._last_modulation(F.silu(embedding))[:, None]
        return [*(block.time(embedding) for block in self.blocks), last]

    def forget_times(self) -> None:
        """Free the weights of `times`, which are most of the time's contribution."""
        del self._last_modulation
        for block in self.blocks:
            block.forget_time()


class Block(ModulatedBlock):
    """Weights only; the keys and values of a stream are in the cached pass. The modulations are
    those of the attention, then of the feed-forward.
    """

    def __init__(self, tensors: Tensors, heads: int) -> None:
        self._heads = heads
        self._modulation = Linear.of(tensors.within("attn_norm.linear"))
        self._in = Linear.joined(*(Linear.of(tensors.within(f"attn.to_{name}")) for name in "qkv"))
        self._out = Linear.of(tensors.within("attn.to_out.0"))
        self._widen = Linear.of(tensors.within("ff.ff.0.0"))
        self._narrow = Linear.of(tensors.within("ff.ff.2"))

    def __call__(self, x: Tensor, time: Tensor, rotation: Rotation, cache: CachedPass, mask: Mask | None) -> Tensor:
        """x [rows, frames, width]; time: a result of the method `time`."""
        shift, scale, gate, feed_shift, feed_scale, feed_gate = time.chunk(BLOCK_MODULATIONS, dim=2)
        x = x + gate * self.attention(modulated(x, shift, scale), rotation, cache, mask)
        return x + feed_gate * self.feed_forward(modulated(x, feed_shift, feed_scale))

    def heads(self, x: Tensor) -> Tensor:
        """Queries, keys and values before the rotation, [3, rows, heads, frames, head width]."""
        return split_heads(self._in(x), self._heads)

    def attention(self, x: Tensor, rotation: Rotation, cache: CachedPass, mask: Mask | None) -> Tensor:
        """x [rows, frames, width] -> the same shape, zeros in padded frames."""
        heads = rotation.of_first_head(self.heads(x))
        attended = attend(heads, cache, None if mask is None else mask.keys)
        return real_frames(self._out(attended), mask)
