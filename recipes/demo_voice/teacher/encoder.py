"""From phonemes to what is said when: a language model of phonemes (ALBERT), durations, pitch and
energy, and the sounds themselves.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipes.demo_voice.teacher.layers import STYLE, AdaLayerNorm, Recurrence, Span, StyledBlock

SYMBOLS = 178


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        heard = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        normed: Tensor = self.LayerNorm(x + self.dense(heard.transpose(1, 2).flatten(2)))
        return normed


class _AlbertLayer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = _Attention(width, heads)
        self.ffn, self.ffn_output = nn.Linear(width, inner), nn.Linear(inner, width)
        self.full_layer_layer_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        normed: Tensor = self.full_layer_layer_norm(x + self.ffn_output(F.gelu(self.ffn(x), approximate="tanh")))
        return normed


class _Embeddings(nn.Module):
    def __init__(self, width: int, places: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(SYMBOLS, width)
        self.position_embeddings = nn.Embedding(places, width)
        self.token_type_embeddings = nn.Embedding(2, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.position_embeddings.weight[: tokens.shape[1]]
        normed: Tensor = self.LayerNorm(self.word_embeddings(tokens) + places + self.token_type_embeddings.weight[0])
        return normed


class _Group(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.albert_layers = nn.ModuleList([_AlbertLayer(width, heads, inner)])

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.albert_layers:
            x = layer(x, mask)
        return x


class _Stack(nn.Module):
    """One group of one layer, applied `depth` times."""

    def __init__(self, embedded: int, width: int, heads: int, inner: int, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.embedding_hidden_mapping_in = nn.Linear(embedded, width)
        self.albert_layer_groups = nn.ModuleList([_Group(width, heads, inner)])

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding_hidden_mapping_in(x)
        for _ in range(self.depth):
            for group in self.albert_layer_groups:
                x = group(x, mask)
        return x


class Albert(nn.Module):
    """ALBERT (Lan et al. 2020): one transformer layer applied twelve times, over a narrow
    embedding.
    """

    def __init__(self, width: int, inner: int, embedded: int, heads: int = 12, depth: int = 12) -> None:
        super().__init__()
        self.embeddings = _Embeddings(embedded, places=512)
        self.encoder = _Stack(embedded, width, heads, inner, depth)

    def forward(self, tokens: Tensor, span: Span) -> Tensor:
        """tokens int64 [B, L] to [B, L, width]."""
        mask = torch.arange(span.longest, device=tokens.device) < span.counts.unsqueeze(1)
        x: Tensor = self.encoder(self.embeddings(tokens), mask)
        return x


class _ChannelNorm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.transpose(1, 2), self.gamma.shape, self.gamma, self.beta, eps=1e-5).transpose(1, 2)


class TextEncoder(nn.Module):
    """The sounds: three convolutions over the phonemes, then a recurrence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, width)
        self.cnn = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 5, padding=2), _ChannelNorm(width)) for _ in range(3)
        )
        self.lstm = Recurrence(width, width)

    def forward(self, tokens: Tensor, span: Span, lengths: Sequence[int]) -> Tensor:
        """tokens int64 [B, L] to [B, L, width]."""
        x = span.clear(self.embedding(tokens).transpose(1, 2).contiguous())
        for layer in self.cnn:
            x = span.clear(F.leaky_relu(layer(x), 0.2))
        return self.lstm.over(x.transpose(1, 2), lengths)


class _DurationEncoder(nn.Module):
    """Recurrences and style norms in turns; the style also joins the input of each recurrence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [Recurrence(width + STYLE, width), AdaLayerNorm(width)]
        self.lstms = nn.ModuleList(layers)

    def forward(self, x: Tensor, style: Tensor, lengths: Sequence[int]) -> Tensor:
        """x [B, L, width] to [B, L, width + 128]."""
        along = style.unsqueeze(1).expand(-1, x.shape[1], -1)
        for layer in self.lstms:
            x = layer.over(torch.cat([x, along], dim=2), lengths) if isinstance(layer, Recurrence) else layer(x, style)
        return torch.cat([x, along], dim=2)


class _Projection(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.linear_layer = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.linear_layer(x)
        return projected


class Prosody(nn.Module):
    """Durations of the phonemes, then pitch and energy of the frames."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.text_encoder = _DurationEncoder(width)
        self.lstm = Recurrence(width + STYLE, width)
        self.duration_proj = _Projection(width, 50)
        self.shared = Recurrence(width + STYLE, width)
        self.F0, self.N = _curve(width), _curve(width)
        self.F0_proj, self.N_proj = nn.Conv1d(width // 2, 1, 1), nn.Conv1d(width // 2, 1, 1)

    def durations(self, x: Tensor, style: Tensor, speed: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        """x [B, L, width], speed [B] to features [B, L, width + 128] and the frames of 25 ms that
        each phoneme takes, int64 [B, L].
        """
        features = self.text_encoder(x, style, lengths)
        chances = self.duration_proj(self.lstm.over(features, lengths)).sigmoid()
        frames = (chances.sum(dim=2) / speed.unsqueeze(1)).round().clamp(min=1).long()
        return features, frames

    def curves(
        self, x: Tensor, style: Tensor, lengths: Sequence[int], span: Span, double: Span
    ) -> tuple[Tensor, Tensor]:
        """x [B, T, width + 128] to pitch in Hz and energy, [B, 1, 2 T] each (80 a second)."""
        shared = self.shared.over(x, lengths).transpose(1, 2).contiguous()
        pitch, energy = _run(self.F0, shared, style, span, double), _run(self.N, shared, style, span, double)
        return double.clear(self.F0_proj(pitch)), double.clear(self.N_proj(energy))


def _run(blocks: nn.ModuleList, x: Tensor, style: Tensor, span: Span, double: Span) -> Tensor:
    for block, before, after in zip(blocks, (span, span, double), (span, double, double), strict=True):
        x = block(x, style, before, after)
    return x


def _curve(width: int) -> nn.ModuleList:
    half = width // 2
    return nn.ModuleList([StyledBlock(width, width), StyledBlock(width, half, upsample=True), StyledBlock(half, half)])
