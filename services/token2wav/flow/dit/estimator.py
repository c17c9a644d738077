"""Causal estimator of the flow's velocity, a diffusion transformer (DiT; compatibility
specification of CosyVoice3, sections 4.3 and 4.4).

Everything in it is strictly causal except the attention, so under streaming masks a block of frames
needs no mask: it sees its own frames and all before it.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.dit.block import Block, modulated
from services.token2wav.flow.dit.inputs import InputEmbedding
from services.token2wav.flow.dit.rotary import Rotation
from services.token2wav.flow.dit.weights import FREQUENCIES, DitConfig
from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.flow.masks import Mask
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.time_embedding import TimeEmbedding


class DitEstimator:
    """See `VelocityEstimator`. Most of the time's contribution is its weights: with the published
    sizes 142 of 331 million, which `velocity` does not touch.
    """

    def __init__(self, tensors: Tensors, config: DitConfig) -> None:
        self._time = TimeEmbedding(*(Linear.of(tensors.within(f"time_embed.time_mlp.{at}")) for at in (0, 2)))
        self.inputs = InputEmbedding(tensors.within("input_embed"))
        self._frequencies = tensors[FREQUENCIES]
        self.blocks = [Block(tensors.within(f"transformer_blocks.{at}"), config.heads) for at in range(config.depth)]
        self._last_modulation = Linear.of(tensors.within("norm_out.linear"))
        self._project = Linear.of(tensors.within("proj_out"))

    @property
    def dtype(self) -> torch.dtype:
        """Number type of weights, keys and values."""
        return self._project.weight.dtype

    def time_sinusoid(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> float32 [rows, 256]: sines, then cosines, of 1000 t."""
        return self._time.sinusoid(t)

    def time_embedding(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> [rows, width]."""
        return self._time(t)

    def times(self, embedding: Tensor) -> list[Tensor]:
        """The modulations of each block, [rows or 1, 1, 6 * width], and of the last norm, scale and
        shift [rows or 1, 1, 2 * width], from the embedding [rows or 1, width].
        """
        last = self._last_modulation(F.silu(embedding))[:, None]
        return [*(block.time(embedding) for block in self.blocks), last]

    def forget_times(self) -> None:
        """Free the weights of `times`, 563 MB with the published sizes in float32."""
        del self._last_modulation
        for block in self.blocks:
            block.forget_time()

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
