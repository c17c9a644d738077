"""Causal estimator of the velocity in Step-Audio2's flow, a diffusion transformer without
positions: frames find their order by the convolutions in its blocks.

Within a block of frames every frame sees all others and all that is kept of those before.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.dit.block import modulated
from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.flow.masks import Mask
from services.token2wav.flow.step_dit.block import StepBlock
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.time_embedding import TimeEmbedding


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


class StepDitEstimator:
    """See `VelocityEstimator`. Most of the time's contribution is its weights: with the published
    sizes 39 of 115 million, which `velocity` does not touch.
    """

    def __init__(self, tensors: Tensors, config: StepDitConfig) -> None:
        self._time = CosineFirstTimeEmbedding(*(Linear.of(tensors.within(f"t_embedder.mlp.{at}")) for at in (0, 2)))
        self.project_in = Linear.of(tensors.within("in_proj"))
        self.blocks = [StepBlock(tensors.within(f"blocks.{at}"), config.heads) for at in range(config.depth)]
        self._last_modulation = Linear.of(tensors.within("final_layer.adaLN_modulation.1"))
        self._project = Linear.of(tensors.within("final_layer.linear"))

    @property
    def dtype(self) -> torch.dtype:
        """Number type of weights, keys and values."""
        return self._project.weight.dtype

    def time_sinusoid(self, t: Tensor) -> Tensor:
        """See `CosineFirstTimeEmbedding`."""
        return self._time.sinusoid(t)

    def time_embedding(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> [rows, width]."""
        return self._time(t)

    def times(self, embedding: Tensor) -> list[Tensor]:
        """The modulations of each block, [rows or 1, 1, 9 * width], and of the last norm, shift and
        scale [rows or 1, 1, 2 * width], from the embedding [rows or 1, width].
        """
        last = self._last_modulation(F.silu(embedding))[:, None]
        return [*(block.time(embedding) for block in self.blocks), last]

    def forget_times(self) -> None:
        """Free the weights of `times`, 153 MB with the published sizes in float32."""
        del self._last_modulation
        for block in self.blocks:
            block.forget_time()

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
