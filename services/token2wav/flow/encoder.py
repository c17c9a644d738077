"""Upsampling conformer encoder: 25 speech tokens per second in, 50 frames per second out
(compatibility specification section 4.2).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.encoder import ConformerLayer, relative_positions
from services.token2wav.flow.layers import LayerNorm, Linear, ProductConvolution, Tensors
from services.token2wav.flow.stream_cache import CachedPass, chunk_mask

UPSAMPLED_LAYERS = 4


class ScaledEmbedding:
    """Linear, layer norm, times the square root of the width."""

    def __init__(self, tensors: Tensors) -> None:
        self._linear = Linear.of(tensors.within("out.0"))
        self._norm = LayerNorm.of(tensors.within("out.1"))
        self._scale = math.sqrt(self._linear.weight.shape[0])

    def __call__(self, x: Tensor) -> Tensor:
        return self._norm(self._linear(x)) * self._scale


class Encoder:
    """Weights only; the state of a stream is in the cached pass."""

    def __init__(self, tensors: Tensors, *, heads: int, layers: int) -> None:
        self.embed = ScaledEmbedding(tensors.within("embed"))
        self._ahead = ProductConvolution.unless_cpu(tensors.within("pre_lookahead_layer.conv1"))
        self._smooth = ProductConvolution.unless_cpu(tensors.within("pre_lookahead_layer.conv2"))
        self.layers = [ConformerLayer(tensors.within(f"encoders.{at}"), heads) for at in range(layers)]
        self._up = ProductConvolution.unless_cpu(tensors.within("up_layer.conv"))
        self._up_embed = ScaledEmbedding(tensors.within("up_embed"))
        self._up_layers = [ConformerLayer(tensors.within(f"up_encoders.{at}"), heads) for at in range(UPSAMPLED_LAYERS)]
        self._norm = LayerNorm.of(tensors.within("after_norm"))

    def __call__(
        self, x: Tensor, ahead: Tensor, before: list[int], cache: CachedPass, *, chunked: bool = False
    ) -> Tensor:
        """Encode the tokens of a block, or of a whole sentence.

        x [streams, tokens, width] and ahead [streams, 3, width]: embedded tokens and their
        look-ahead, zeros where there is none. before: tokens already encoded, per stream. chunked:
        apply streaming masks to a pass of more than one block. Returns [streams, 2 * tokens,
        width].
        """
        x = self._stack(
            self.layers, self.pre_lookahead(x, ahead, cache), before, cache, CHUNK_TOKENS if chunked else None
        )
        x = x.repeat_interleave(MEL_FRAMES_PER_TOKEN, dim=1)
        x = self._up_embed(self._up(cache.before(x, self._up.reach)))
        before = [MEL_FRAMES_PER_TOKEN * tokens for tokens in before]
        return self._norm(self._stack(self._up_layers, x, before, cache, CHUNK_FRAMES if chunked else None))

    def pre_lookahead(self, x: Tensor, ahead: Tensor, cache: CachedPass) -> Tensor:
        """Let each token see the three after it, then smooth over the three up to it; same shape as
        x.
        """
        seen = F.leaky_relu(self._ahead(torch.cat((x, ahead), dim=1)), 0.01)
        return self._smooth(cache.before(seen, self._smooth.reach)) + x

    @staticmethod
    def _stack(
        layers: list[ConformerLayer], x: Tensor, before: list[int], cache: CachedPass, chunk: int | None
    ) -> Tensor:
        length, width = x.shape[1:]
        positions = [relative_positions(done + length, length, width, x.device) for done in before]
        allowed = None if chunk is None else chunk_mask(length, chunk, x.device)
        for layer in layers:
            x = layer(x, cache, positions, allowed)
        return x
