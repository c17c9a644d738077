"""Causal estimator of the flow's velocity, a U-Net of one level (compatibility specification
section 4.5).

Everything in it is strictly causal except the attention, so under streaming masks a block of frames
needs no mask: it sees its own frames and all before it.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.attention import Mask, attend, real_frames, split_heads
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.layers import (
    LayerNorm,
    Linear,
    ProductConvolution,
    Tensors,
    TimedEstimator,
    TimeEmbedding,
    mish,
    ordered,
)
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.unet.front import ConformerFront
from services.token2wav.flow.unet.weights import UnetConfig


class CausalBlock:
    """Causal convolution of three taps, layer norm, Mish."""

    def __init__(self, tensors: Tensors) -> None:
        self._convolution = ProductConvolution.of(tensors.within("block.0"))
        self._norm = LayerNorm.of(tensors.within("block.2"))

    def __call__(self, x: Tensor, cache: CachedPass, mask: Mask | None) -> Tensor:
        convolved = self._convolution(cache.before(real_frames(x, mask), self._convolution.reach))
        return real_frames(mish(self._norm(convolved)), mask)


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
        return self._second(h, cache, mask) + self._shortcut(real_frames(x, mask))


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
        return self._out(attend(split_heads(self._in(x), self._heads), cache, allowed))


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


class Estimator(TimedEstimator):
    """Weights only; the state of a stream is in the cached pass."""

    def __init__(self, tensors: Tensors, *, heads: int, transformers: int, middle: int) -> None:
        self._time = TimeEmbedding(*(Linear.of(tensors.within(f"time_mlp.linear_{at}")) for at in (1, 2)))
        self._down = Level(tensors.within("down_blocks.0"), heads, transformers)
        self._down_end = ProductConvolution.of(tensors.within("down_blocks.0.2"))
        self._middle = [Level(tensors.within(f"mid_blocks.{at}"), heads, transformers) for at in range(middle)]
        self._up = Level(tensors.within("up_blocks.0"), heads, transformers)
        self._up_end = ProductConvolution.of(tensors.within("up_blocks.0.2"))
        self._final = CausalBlock(tensors.within("final_block"))
        self._project = Linear(ordered(tensors["final_proj.weight"].squeeze(2)), tensors["final_proj.bias"])

    def times(self, embedding: Tensor) -> list[Tensor]:
        """The terms that a time adds to each level, [rows or 1, 1, channels], from its embedding
        [rows or 1, 4 * channels].
        """
        return [level.resnet.time(embedding) for level in (self._down, *self._middle, self._up)]

    def forget_times(self) -> None:
        """Nothing: with the published sizes they are 20 MB."""

    def __call__(self, inputs: Tensor, time: Tensor, cache: CachedPass, mask: Mask | None = None) -> Tensor:
        """inputs [rows, time, 320]: x, mu, speaker, condition concatenated; time [rows or 1, 4 *
        channels] -> velocity [rows, time, 80].
        """
        return self.velocity(inputs, self.times(time), cache, mask)

    def velocity(self, inputs: Tensor, times: Sequence[Tensor], cache: CachedPass, mask: Mask | None = None) -> Tensor:
        """The same with precomputed `times`, for times that occur repeatedly."""
        first, *between, last = times
        x = skip = self._down(inputs, first, cache, mask)
        x = self._down_end(cache.before(real_frames(x, mask), self._down_end.reach))
        for level, time in zip(self._middle, between, strict=True):
            x = level(x, time, cache, mask)
        x = self._up(torch.cat((x, skip), dim=2), last, cache, mask)
        x = self._up_end(cache.before(real_frames(x, mask), self._up_end.reach))
        return real_frames(self._project(real_frames(self._final(x, cache, mask), mask)), mask)


class UnetNetwork(ConformerFront):
    """See `FlowNetwork` (compatibility specification of CosyVoice2, sections 4.1 and 4.7). Training
    builds exactly the network that is served.
    """

    def __init__(self, config: UnetConfig, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(config, tensors)
        self.estimator = Estimator(
            Tensors(tensors).within(ESTIMATOR[:-1]),
            heads=config.estimator_heads,
            transformers=config.transformers,
            middle=config.middle,
        )
