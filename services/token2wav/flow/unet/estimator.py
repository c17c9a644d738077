"""Causal estimator of the flow's velocity, a U-Net of one level (compatibility specification
section 4.5).

Everything in it is strictly causal except the attention, so under streaming masks a block of frames
needs no mask: it sees its own frames and all before it.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.layers import LayerNorm, Linear, ProductConvolution, Tensors, mish, ordered
from services.token2wav.flow.stream_cache import CachedPass


class Mask:
    """Which frames are real and which keys a query may see, for passes that are not one block.

    frames: [rows, time, 1] of ones and zeros. allowed: bool [time, time] or None.
    """

    def __init__(self, frames: Tensor, allowed: Tensor | None = None) -> None:
        self.frames = frames
        real = frames.transpose(1, 2)[:, None] > 0
        self.keys = real if allowed is None else real & allowed


def _real(x: Tensor, mask: Mask | None) -> Tensor:
    return x if mask is None else x * mask.frames


class CausalBlock:
    """Causal convolution of three taps, layer norm, Mish."""

    def __init__(self, tensors: Tensors) -> None:
        self._convolution = ProductConvolution.of(tensors.within("block.0"))
        self._norm = LayerNorm.of(tensors.within("block.2"))

    def __call__(self, x: Tensor, cache: CachedPass, mask: Mask | None) -> Tensor:
        return _real(mish(self._norm(self._convolution(cache.before(_real(x, mask), self._convolution.reach)))), mask)


class Resnet:
    """Two causal blocks, with the time embedding added between them, plus a 1x1 convolution as
    shortcut.
    """

    def __init__(self, tensors: Tensors) -> None:
        self._time = Linear.of(tensors.within("mlp.1"))
        self._first = CausalBlock(tensors.within("block1"))
        self._second = CausalBlock(tensors.within("block2"))
        self._shortcut = Linear(ordered(tensors["res_conv.weight"].squeeze(2)), tensors["res_conv.bias"])

    def time(self, embedding: Tensor) -> Tensor:
        """The term that a time adds between the blocks: embedding [rows or 1, 4 * channels] ->
        [rows or 1, 1, channels].
        """
        return self._time(F.mish(embedding))[:, None]

    def __call__(self, x: Tensor, time: Tensor, cache: CachedPass, mask: Mask | None) -> Tensor:
        """time: a result of the method `time`."""
        h = self._first(x, cache, mask) + time
        return self._second(h, cache, mask) + self._shortcut(_real(x, mask))


class Transformer:
    """x += attention(norm(x)); x += feed_forward(norm(x)), without positions."""

    def __init__(self, tensors: Tensors, heads: int) -> None:
        self._heads = heads
        self._norm_attention = LayerNorm.of(tensors.within("norm1"))
        self._in = Linear.joined(*(Linear.of(tensors.within(f"attn1.to_{name}")) for name in "qkv"))
        self._out = Linear.of(tensors.within("attn1.to_out.0"))
        self._norm_feed_forward = LayerNorm.of(tensors.within("norm3"))
        self._widen = Linear.of(tensors.within("ff.net.0.proj"))
        self._narrow = Linear.of(tensors.within("ff.net.2"))

    def __call__(self, x: Tensor, cache: CachedPass, mask: Mask | None) -> Tensor:
        x = x + self._attend(self._norm_attention(x), cache, None if mask is None else mask.keys)
        return x + self._narrow(F.gelu(self._widen(self._norm_feed_forward(x))))

    def _attend(self, x: Tensor, cache: CachedPass, allowed: Tensor | None) -> Tensor:
        rows, time, _ = x.shape
        projected = self._in(x).view(rows, time, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
        # Split instead of indexed: the gradient of indexing is a full tensor of zeros.
        queries, new = projected.split_with_sizes((1, 2))
        keys_values = [known.unbind() for known in cache.keys_values(new)]
        parts = [
            F.scaled_dot_product_attention(query, keys, values, attn_mask=allowed)
            for query, (keys, values) in zip(cache.split(queries.squeeze(0)), keys_values, strict=True)
        ]
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        return self._out(joined.transpose(1, 2).reshape(rows, time, -1))


class Level:
    """A resnet followed by transformers."""

    def __init__(self, tensors: Tensors, heads: int, transformers: int) -> None:
        self.resnet = Resnet(tensors.within("0"))
        self._transformers = [Transformer(tensors.within(f"1.{at}"), heads) for at in range(transformers)]

    def __call__(self, x: Tensor, time: Tensor, cache: CachedPass, mask: Mask | None) -> Tensor:
        x = self.resnet(x, time, cache, mask)
        for transformer in self._transformers:
            x = transformer(x, cache, mask)
        return x


class Estimator:
    """Weights only; the state of a stream is in the cached pass."""

    def __init__(self, tensors: Tensors, *, heads: int, transformers: int, middle: int) -> None:
        self._time_in = Linear.of(tensors.within("time_mlp.linear_1"))
        self._time_out = Linear.of(tensors.within("time_mlp.linear_2"))
        self._down = Level(tensors.within("down_blocks.0"), heads, transformers)
        self._down_end = ProductConvolution.of(tensors.within("down_blocks.0.2"))
        self._middle = [Level(tensors.within(f"mid_blocks.{at}"), heads, transformers) for at in range(middle)]
        self._up = Level(tensors.within("up_blocks.0"), heads, transformers)
        self._up_end = ProductConvolution.of(tensors.within("up_blocks.0.2"))
        self._final = CausalBlock(tensors.within("final_block"))
        self._project = Linear(ordered(tensors["final_proj.weight"].squeeze(2)), tensors["final_proj.bias"])

    @property
    def dtype(self) -> torch.dtype:
        """Number type of weights, keys and values."""
        return self._project.weight.dtype

    def time_sinusoid(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> float32 [rows, channels in]: sines, then cosines, of 1000 t."""
        half = self._time_in.weight.shape[1] // 2
        rate = torch.exp(torch.arange(half, dtype=torch.float32, device=t.device) * -(math.log(10000.0) / (half - 1)))
        angle = 1000.0 * t.float()[:, None] * rate
        return torch.cat((angle.sin(), angle.cos()), dim=1)

    def time_embedding(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> [rows, 4 * channels]."""
        return self._time_out(F.silu(self._time_in(self.time_sinusoid(t).to(self.dtype))))

    def times(self, embedding: Tensor) -> list[Tensor]:
        """The terms that a time adds to each level, [rows or 1, 1, channels], from its embedding
        [rows or 1, 4 * channels].
        """
        return [level.resnet.time(embedding) for level in (self._down, *self._middle, self._up)]

    def __call__(self, inputs: Tensor, time: Tensor, cache: CachedPass, mask: Mask | None = None) -> Tensor:
        """inputs [rows, time, 320]: x, mu, speaker, condition concatenated; time [rows or 1, 4 *
        channels] -> velocity [rows, time, 80].
        """
        return self.velocity(inputs, self.times(time), cache, mask)

    def velocity(self, inputs: Tensor, times: Sequence[Tensor], cache: CachedPass, mask: Mask | None = None) -> Tensor:
        """The same with precomputed `times`, for times that occur repeatedly."""
        first, *between, last = times
        x = skip = self._down(inputs, first, cache, mask)
        x = self._down_end(cache.before(_real(x, mask), self._down_end.reach))
        for level, time in zip(self._middle, between, strict=True):
            x = level(x, time, cache, mask)
        x = self._up(torch.cat((x, skip), dim=2), last, cache, mask)
        x = self._up_end(cache.before(_real(x, mask), self._up_end.reach))
        return _real(self._project(_real(self._final(x, cache, mask), mask)), mask)
