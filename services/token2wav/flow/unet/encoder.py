"""Upsampling conformer encoder: 25 speech tokens per second in, 50 frames per second out
(compatibility specification of CosyVoice2, sections 4.2 and 4.3).

Its layers are conformers with relative-position attention and without convolution module. Attention
scores by content and by distance as in Transformer-XL: Dai et al., "Transformer-XL", ACL 2019. The
layer is that of Gulati et al., "Conformer", Interspeech 2020, reduced to attention and one
feed-forward.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.attention import chunk_mask
from services.token2wav.flow.layers import LayerNorm, Linear, LookAhead, ProductConvolution, Tensors
from services.token2wav.flow.stream_cache import CachedPass

_QUERIES_AT_ONCE = 512


def relative_positions(keys: int, queries: int, width: int, device: torch.device) -> Tensor:
    """Sinusoids [keys + queries - 1, width] of the distances keys - 1 down to 1 - queries, sine and
    cosine interleaved.

    Computed for the requested distances, so there is no maximum length.
    """
    distance = torch.arange(keys - 1, -queries, -1, dtype=torch.float32, device=device)
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float32, device=device) * -(math.log(10000.0) / width))
    angle = distance[:, None] * rate
    return torch.stack((angle.sin(), angle.cos()), dim=2).flatten(1)


def _by_key(by_distance: Tensor) -> Tensor:
    """Scores [..., queries, keys + queries - 1] by descending distance -> [..., queries, keys]:
    query i starts at column queries - 1 - i.

    Returns a view: in row-major memory, one row down and one column back is one element less than a
    row. Gradients pass as slices.
    """
    queries, distances = by_distance.shape[-2:]
    if queries == 1:
        return by_distance
    flat = by_distance.flatten(-2)[..., queries - 1 : queries - 1 + queries * (distances - 1)]
    rows: Tensor = flat.unflatten(-1, (queries, distances - 1))  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return rows[..., : distances - queries + 1]


class RelativeAttention:
    """Attention of one block's queries to all keys up to the end of the block."""

    def __init__(self, tensors: Tensors, heads: int) -> None:
        self._heads = heads
        self._in = Linear.joined(*(Linear.of(tensors.within(f"linear_{name}")) for name in "qkv"))
        self._position = Linear.of(tensors.within("linear_pos"))
        self._out = Linear.of(tensors.within("linear_out"))
        self._content_bias = tensors["pos_bias_u"][:, None]
        self._distance_bias = tensors["pos_bias_v"][:, None]

    def __call__(self, x: Tensor, cache: CachedPass, positions: list[Tensor], allowed: Tensor | None) -> Tensor:
        """x [streams, queries, width]; positions per stream [keys + queries - 1, width]; allowed
        bool [queries, keys].
        """
        streams, queries, width = x.shape
        projected = self._in(x).view(streams, queries, 3, self._heads, width // self._heads).permute(2, 0, 3, 1, 4)
        # Split instead of indexed: the gradient of indexing is a full tensor of zeros.
        asked, new = projected.split_with_sizes((1, 2))
        attended = [
            self._attend(query, known, self._position(table), allowed)
            for query, known, table in zip(
                cache.split(asked.squeeze(0)), cache.keys_values(new), positions, strict=True
            )
        ]
        joined = attended[0] if len(attended) == 1 else torch.cat(attended)
        return self._out(joined.transpose(1, 2).reshape(streams, queries, width))

    def _attend(self, query: Tensor, known: Tensor, position: Tensor, allowed: Tensor | None) -> Tensor:
        """Computed in slices of queries, so that memory grows with the number of keys and not with
        its square.
        """
        queries, keys, width = query.shape[2], known.shape[3], query.shape[3]
        all_keys, all_values = known.unbind()
        by_distance = position.view(-1, self._heads, width).permute(1, 2, 0)
        parts = []
        for first in range(0, queries, _QUERIES_AT_ONCE):
            part = query if queries <= _QUERIES_AT_ONCE else query[:, :, first : first + _QUERIES_AT_ONCE]
            # Query i and key j are (keys - queries + i) - j apart, which is row queries - 1 - i + j
            # of the table.
            last = queries - 1 - first
            seen = by_distance[:, :, last + 1 - part.shape[2] : last + keys]
            score = _by_key((part + self._distance_bias) @ seen) / math.sqrt(width)
            if allowed is not None:
                score = score.masked_fill(~allowed[first : first + _QUERIES_AT_ONCE], float("-inf"))
            parts.append(
                F.scaled_dot_product_attention(part + self._content_bias, all_keys, all_values, attn_mask=score)
            )
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


class ConformerLayer:
    """x += attention(norm(x)); x += feed_forward(norm(x)), with a layer-norm epsilon of 1e-12."""

    def __init__(self, tensors: Tensors, heads: int) -> None:
        self._attention = RelativeAttention(tensors.within("self_attn"), heads)
        self._norm_attention = LayerNorm.of(tensors.within("norm_mha"), 1e-12)
        self._norm_feed_forward = LayerNorm.of(tensors.within("norm_ff"), 1e-12)
        self._widen = Linear.of(tensors.within("feed_forward.w_1"))
        self._narrow = Linear.of(tensors.within("feed_forward.w_2"))

    def __call__(self, x: Tensor, cache: CachedPass, positions: list[Tensor], allowed: Tensor | None = None) -> Tensor:
        """x [streams, time, width]; the rest as in RelativeAttention."""
        x = x + self._attention(self._norm_attention(x), cache, positions, allowed)
        return x + self._narrow(F.silu(self._widen(self._norm_feed_forward(x))))


UPSAMPLED_LAYERS = 4
"""Of CosyVoice2, whose yaml does not say it."""


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

    def __init__(self, tensors: Tensors, *, heads: int, layers: int, upsampled_layers: int = UPSAMPLED_LAYERS) -> None:
        self.width = tensors["after_norm.weight"].shape[0]
        self.embed = ScaledEmbedding(tensors.within("embed"))
        self.look_ahead = LookAhead(tensors.within("pre_lookahead_layer"))
        self.layers = [ConformerLayer(tensors.within(f"encoders.{at}"), heads) for at in range(layers)]
        self._up = ProductConvolution.unless_cpu(tensors.within("up_layer.conv"))
        self._up_embed = ScaledEmbedding(tensors.within("up_embed"))
        self._up_layers = [ConformerLayer(tensors.within(f"up_encoders.{at}"), heads) for at in range(upsampled_layers)]
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
        x = self._stack(self.layers, self.look_ahead(x, ahead, cache), before, cache, CHUNK_TOKENS if chunked else None)
        x = x.repeat_interleave(MEL_FRAMES_PER_TOKEN, dim=1)
        x = self._up_embed(self._up(cache.before(x, self._up.reach)))
        before = [MEL_FRAMES_PER_TOKEN * tokens for tokens in before]
        return self._norm(self._stack(self._up_layers, x, before, cache, CHUNK_FRAMES if chunked else None))

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
