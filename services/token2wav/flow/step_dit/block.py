"""A block of Step-Audio2's DiT: attention, convolution and feed-forward, each behind a norm that
the time scales and shifts.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.attention import attend, split_heads
from services.token2wav.flow.dit.block import modulated
from services.token2wav.flow.layers import LayerNorm, Linear, ProductConvolution, Tensors, mish
from services.token2wav.flow.masks import Mask
from services.token2wav.flow.step_dit.weights import BLOCK_MODULATIONS
from services.token2wav.flow.stream_cache import CachedPass


class ConvolutionPart:
    """Causal convolution of three taps, layer norm, Mish, causal convolution."""

    def __init__(self, tensors: Tensors) -> None:
        self._first = ProductConvolution.of(tensors.within("1"))
        self._norm = LayerNorm.of(tensors.within("3"))
        self._second = ProductConvolution.of(tensors.within("6"))

    def __call__(self, x: Tensor, cache: CachedPass) -> Tensor:
        """x [rows, frames, width] -> the same shape. In front of a stream are zeros for both
        convolutions.
        """
        x = mish(self._norm(self._first(cache.before(x, self._first.reach))))
        return self._second(cache.before(x, self._second.reach))


class StepBlock:
    """Weights only; what a stream keeps is in the cached pass."""

    def __init__(self, tensors: Tensors, heads: int) -> None:
        self._heads = heads
        self._modulation = Linear.of(tensors.within("adaLN_modulation.1"))
        self._in = Linear.joined(*(Linear.of(tensors.within(f"attn.to_{name}")) for name in "qkv"))
        self._norms = [LayerNorm.of(tensors.within(f"attn.{name}_norm")) for name in "qk"]
        self._out = Linear.of(tensors.within("attn.proj"))
        self._convolution = ConvolutionPart(tensors.within("conv.block"))
        self._widen = Linear.of(tensors.within("mlp.fc1"))
        self._narrow = Linear.of(tensors.within("mlp.fc2"))

    def time(self, embedding: Tensor) -> Tensor:
        """Shift, scale and gate of the attention, then of the feed-forward, then of the
        convolution: embedding [rows or 1, width] -> [rows or 1, 1, 9 * width].
        """
        return self._modulation(F.silu(embedding))[:, None]

    def forget_time(self) -> None:
        """Free the weights of `time`, which cannot be called any more."""
        del self._modulation

    def __call__(self, x: Tensor, time: Tensor, cache: CachedPass, mask: Mask | None) -> Tensor:
        """x [rows, frames, width]; time: a result of the method `time`."""
        *_, x = self.parts(x, time, cache, mask)
        return x

    def parts(self, x: Tensor, time: Tensor, cache: CachedPass, mask: Mask | None) -> tuple[Tensor, Tensor, Tensor]:
        """x after the attention, after the convolution, and after the feed-forward."""
        modulation = time.chunk(BLOCK_MODULATIONS, dim=2)
        (shift, scale, gate), feed, conv = modulation[:3], modulation[3:6], modulation[6:]
        attended = x + gate * self._attention(modulated(x, shift, scale), cache, mask)
        shift, scale, gate = conv
        convolved = attended + gate * self._convolution(modulated(attended, shift, scale), cache)
        shift, scale, gate = feed
        return attended, convolved, convolved + gate * self._feed_forward(modulated(convolved, shift, scale))

    def heads(self, x: Tensor) -> Tensor:
        """Queries and keys, each head normed over its channels, and values: x [rows, frames, width]
        -> [3, rows, heads, frames, head width].
        """
        queries, keys, values = split_heads(self._in(x), self._heads).unbind()
        normed = [norm(each) for norm, each in zip(self._norms, (queries, keys), strict=True)]
        return torch.stack((*normed, values))

    def _attention(self, x: Tensor, cache: CachedPass, mask: Mask | None) -> Tensor:
        return self._out(attend(self.heads(x), cache, None if mask is None else mask.keys))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self._narrow(F.gelu(self._widen(x), approximate="tanh"))
