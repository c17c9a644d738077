"""A block of the DiT: attention and feed-forward behind norms that the time scales and shifts
(compatibility specification of CosyVoice3, section 4.4).

Peebles and Xie, "Scalable Diffusion Models with Transformers", ICCV 2023.
"""

import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.attention import attend, split_heads
from services.token2wav.flow.dit.rotary import Rotation
from services.token2wav.flow.dit.weights import BLOCK_MODULATIONS
from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.flow.masks import Mask, real_frames
from services.token2wav.flow.stream_cache import CachedPass

_EPSILON = 1e-6


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Layer norm without weights, scaled and shifted. x [rows, time, width]; shift, scale [rows or
    1, 1, width].
    """
    return F.layer_norm(x, x.shape[-1:], eps=_EPSILON) * (1 + scale) + shift


class Block:
    """Weights only; the keys and values of a stream are in the cached pass."""

    def __init__(self, tensors: Tensors, heads: int) -> None:
        self._heads = heads
        self._modulation = Linear.of(tensors.within("attn_norm.linear"))
        self._in = Linear.joined(*(Linear.of(tensors.within(f"attn.to_{name}")) for name in "qkv"))
        self._out = Linear.of(tensors.within("attn.to_out.0"))
        self._widen = Linear.of(tensors.within("ff.ff.0.0"))
        self._narrow = Linear.of(tensors.within("ff.ff.2"))

    def time(self, embedding: Tensor) -> Tensor:
        """Shift, scale and gate of the attention, then of the feed-forward: embedding [rows or 1,
        width] -> [rows or 1, 1, 6 * width].
        """
        return self._modulation(F.silu(embedding))[:, None]

    def forget_time(self) -> None:
        """Free the weights of `time`, which cannot be called any more."""
        del self._modulation

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

    def feed_forward(self, x: Tensor) -> Tensor:
        """x [rows, frames, width] -> the same shape."""
        return self._narrow(F.gelu(self._widen(x), approximate="tanh"))
