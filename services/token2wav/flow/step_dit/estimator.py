"""Causal estimator of the velocity in Step-Audio2's flow, a diffusion transformer without
positions: frames find their order by the convolutions in its blocks.

Within a block of frames every frame sees all others and all that is kept of those before.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from services.token2wav.flow.attention import Mask, attend, split_heads
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.dit.block import ModulatedBlock, ModulatedEstimator, modulated
from services.token2wav.flow.layers import LayerNorm, Linear, ProductConvolution, Tensors, TimeEmbedding, mish
from services.token2wav.flow.step_dit.weights import BLOCK_MODULATIONS, StepDitConfig
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.unet.front import ConformerFront


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


class StepBlock(ModulatedBlock):
    """Weights only; what a stream keeps is in the cached pass. The modulations are those of the
    attention, then of the feed-forward, then of the convolution.
    """

    def __init__(self, tensors: Tensors, heads: int) -> None:
        self._heads = heads
        self._modulation = Linear.of(tensors.within("adaLN_modulation.1"))
        self._in = Linear.joined(*(Linear.of(tensors.within(f"attn.to_{name}")) for name in "qkv"))
        self._norms = [LayerNorm.of(tensors.within(f"attn.{name}_norm")) for name in "qk"]
        self._out = Linear.of(tensors.within("attn.proj"))
        self._convolution = ConvolutionPart(tensors.within("conv.block"))
        self._widen = Linear.of(tensors.within("mlp.fc1"))
        self._narrow = Linear.of(tensors.within("mlp.fc2"))

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
        return attended, convolved, convolved + gate * self.feed_forward(modulated(convolved, shift, scale))

    def heads(self, x: Tensor) -> Tensor:
        """Queries and keys, each head normed over its channels, and values: x [rows, frames, width]
        -> [3, rows, heads, frames, head width].
        """
        queries, keys, values = split_heads(self._in(x), self._heads).unbind()
        normed = [norm(each) for norm, each in zip(self._norms, (queries, keys), strict=True)]
        return torch.stack((*normed, values))

    def _attention(self, x: Tensor, cache: CachedPass, mask: Mask | None) -> Tensor:
        return self._out(attend(self.heads(x), cache, None if mask is None else mask.keys))


class CosineFirstTimeEmbedding(TimeEmbedding):
    """The sinusoids that Step-Audio2 was trained with."""

    def sinusoid(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> float32 [rows, sinusoids]: cosines, then sines, of 1000 t; the rates
        go down to 10000^(1/n - 1), n cosines.
        """
        half = self.width_in // 2
        exponent = torch.arange(half, dtype=torch.float32, device=t.device) * -math.log(10000.0) / half
        angle = 1000.0 * t.float()[:, None] * exponent.double().exp().float()
        return torch.cat((angle.cos(), angle.sin()), dim=1)


class StepDitEstimator(ModulatedEstimator[StepBlock]):
    """See `VelocityEstimator`. Most of the time's contribution is its weights: with the published
    sizes 39 of 115 million, 153 MB in float32, which `velocity` does not touch.
    """

    def __init__(self, tensors: Tensors, config: StepDitConfig) -> None:
        self._time = CosineFirstTimeEmbedding(*(Linear.of(tensors.within(f"t_embedder.mlp.{at}")) for at in (0, 2)))
        self.project_in = Linear.of(tensors.within("in_proj"))
        self.blocks = [StepBlock(tensors.within(f"blocks.{at}"), config.heads) for at in range(config.depth)]
        self._last_modulation = Linear.of(tensors.within("final_layer.adaLN_modulation.1"))
        self._project = Linear.of(tensors.within("final_layer.linear"))

    def velocity(self, inputs: Tensor, times: Sequence[Tensor], cache: CachedPass, mask: Mask | None = None) -> Tensor:
        """inputs [rows, frames, 320]: x, mu, speaker, condition side by side -> [rows, frames, 80].
        The mask decides which keys are seen; padded frames hold values without a meaning.
        """
        *modulations, last = times
        x = self.project_in(inputs)
        for block, modulation in zip(self.blocks, modulations, strict=True):
            x = block(x, modulation, cache, mask)
        return self.output(x, last)

    def output(self, x: Tensor, time: Tensor) -> Tensor:
        """The end of the network, from the last block's x [rows, frames, width]."""
        shift, scale = time.chunk(2, dim=2)
        return self._project(modulated(x, shift, scale))


class StepDitNetwork(ConformerFront):
    """See `FlowNetwork`."""

    def __init__(self, config: StepDitConfig, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(config, tensors)
        self.estimator = StepDitEstimator(Tensors(tensors).within(ESTIMATOR[:-1]), config)
