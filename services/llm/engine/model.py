"""The speech-token decoder: a Qwen2 backbone between three embedding tables and a head.
Weights only, no state.

Pre-norm blocks: x + attention(norm(x)), x + mlp(norm(x)); grouped-query causal attention with
rotary positions (half-split pairs) and biased q, k, v; silu-gated MLP; RMSNorm. Float32. Source:
compatibility specification section 3.1; rotary embedding: Su et al., 2021; RMSNorm: Zhang and
Sennrich, 2019; grouped queries: Ainslie et al., 2023.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.generations.generation import SpeechVocabulary
from services.llm.engine.kv_cache import SequenceCache
from services.llm.generation.config import LlmConfig
from services.llm.generation.script import Input


@dataclass(frozen=True)
class Layer:
    """Weights of one block; q, k, v in one matrix and gate, up in one, so that each is a single
    product.
    """

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class SpeechTokenModel:
    """All weights on one device. `tables`: float32 [rows, hidden] each, in the order of `Table`."""

    config: LlmConfig
    tables: tuple[Tensor, Tensor, Tensor]
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Tensor
    head_bias: Tensor
    rotary_frequencies: Tensor
    """Radians per position, float32 [head_size / 2]."""

    @classmethod
    def build(cls, config: LlmConfig, tensors: Mapping[str, Tensor], device: torch.device) -> Self:
        """From the tensors of `weights.expected_tensors`."""

        def joined(names: Iterable[str]) -> Tensor:
            return torch.cat([tensors[name] for name in names]).to(device)

        layers = tuple(
            Layer(
                attention_norm=tensors[f"{at}.input_layernorm.weight"].to(device),
                qkv=joined(f"{at}.self_attn.{part}_proj.weight" for part in "qkv"),
                qkv_bias=joined(f"{at}.self_attn.{part}_proj.bias" for part in "qkv"),
                out=tensors[f"{at}.self_attn.o_proj.weight"].to(device),
                mlp_norm=tensors[f"{at}.post_attention_layernorm.weight"].to(device),
                gate_up=joined(f"{at}.mlp.{part}_proj.weight" for part in ("gate", "up")),
                down=tensors[f"{at}.mlp.down_proj.weight"].to(device),
            )
            for at in (f"llm.model.model.layers.{index}" for index in range(config.layers))
        )
        speech, vocabulary = tensors["speech_embedding.weight"], config.speech
        return cls(
            config=config,
            tables=(
                _special_rows(tensors, vocabulary).to(device),
                tensors["llm.model.model.embed_tokens.weight"].to(device),
                speech.to(device),
            ),
            layers=layers,
            norm=tensors["llm.model.model.norm.weight"].to(device),
            head=tensors["llm_decoder.weight"].to(device),
            head_bias=(tensors["llm_decoder.bias"] if vocabulary.head_bias else speech.new_zeros(vocabulary.rows)).to(
                device
            ),
            rotary_frequencies=_rotary_frequencies(config.rope_theta, config.head_size, device),
        )

    @property
    def device(self) -> torch.device:
        return self.norm.device

    def embed(self, inputs: Sequence[Input]) -> Tensor:
        """Input embeddings, float32 [n, hidden]."""
        runs = [(table, [item.row for item in run]) for table, run in groupby(inputs, key=lambda item: item.table)]
        return torch.cat(
            [F.embedding(torch.tensor(rows, device=self.device), self.tables[table]) for table, rows in runs]
        )

    def forward(self, embeddings: Tensor, cache: SequenceCache) -> Tensor:
        """Run n more positions of one sequence, [n, hidden] -> [n, hidden] after the final norm;
        the cache grows by n.
        """
        begin, end = cache.length, cache.length + len(embeddings)
        rotation = self._rotation(torch.arange(begin, end, device=self.device))
        seen = torch.ones(end - begin, end, dtype=torch.bool, device=self.device).tril(begin)
        hidden = embeddings
        for index, layer in enumerate(self.layers):
            query, key, value = self._project(layer, hidden, rotation)
            hidden = self._finish_block(layer, hidden, attend(query, *cache.append(index, key, value), seen))
        cache.length += len(embeddings)
        return self._normalize(hidden, self.norm)

    def forward_rows(self, embeddings: Tensor, caches: Sequence[SequenceCache]) -> Tensor:
        """Run one more position of each of B sequences, [B, hidden] -> [B, hidden]; each cache
        grows by 1.

        All products are computed for the whole batch; attention is computed row by row, so that
        sequences of different lengths need no padding. Within rounding equal to `forward` on each
        row.
        """
        rotation = self._rotation(torch.tensor([cache.length for cache in caches], device=self.device))
        hidden = embeddings
        for index, layer in enumerate(self.layers):
            query, key, value = self._project(layer, hidden, rotation)
            attended = [
                attend(query[row : row + 1], *cache.append(index, key[row : row + 1], value[row : row + 1]))
                for row, cache in enumerate(caches)
            ]
            hidden = self._finish_block(layer, hidden, torch.cat(attended))
        for cache in caches:
            cache.length += 1
        return self._normalize(hidden, self.norm)

    def forward_batch(self, embeddings: Tensor) -> Tensor:
        """Run B whole sequences from position 0, [B, T, hidden] -> [B, T, hidden], without a cache;
        differentiable.

        Rows may be padded at their end: attention is causal, so earlier positions do not see the
        padding. Within rounding equal to `forward` on each row.
        """
        rotation = self._rotation(torch.arange(embeddings.shape[1], device=self.device))
        hidden = embeddings
        for layer in self.layers:
            query, key, value = (part.transpose(1, 2) for part in self._project(layer, hidden, rotation))
            attended = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            hidden = self._finish_block(layer, hidden, attended.transpose(1, 2).flatten(2))
        return self._normalize(hidden, self.norm)

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """[n, hidden] -> float32 [n, ids]."""
        return F.log_softmax(F.linear(hidden, self.head, self.head_bias), dim=-1)

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, [n, 1, head_size]."""
        angles = positions.to(torch.float32)[:, None] * self.rotary_frequencies
        angles = torch.cat([angles, angles], dim=-1)[:, None]
        return angles.cos(), angles.sin()

    def _project(self, layer: Layer, hidden: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """hidden [..., n, hidden] -> q [..., n, heads, head_size], k and v [..., n, kv_heads,
        head_size], q and k rotated.
        """
        heads, kv_heads = self.config.heads, self.config.kv_heads
        joined = F.linear(self._normalize(hidden, layer.attention_norm), layer.qkv, layer.qkv_bias)
        joined = joined.view(*hidden.shape[:-1], heads + 2 * kv_heads, self.config.head_size)
        rotated = _rotate(joined[..., : heads + kv_heads, :], rotation)
        return rotated[..., :heads, :], rotated[..., heads:, :], joined[..., heads + kv_heads :, :]

    def _finish_block(self, layer: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
        hidden = hidden + self._branch(F.linear(attended, layer.out))
        gate, up = F.linear(self._normalize(hidden, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
        return hidden + self._branch(F.linear(F.silu(gate) * up, layer.down))

    def _branch(self, change: Tensor) -> Tensor:
        """What attention and MLP add to the residual stream, [..., hidden]; a hook for dropout in
        training.
        """
        return change

    def _normalize(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, (hidden.shape[-1],), weight, self.config.rms_norm_eps)


def _special_rows(tensors: Mapping[str, Tensor], vocabulary: SpeechVocabulary) -> Tensor:
    """The rows that `Table.SPECIAL` names: a table of its own, or rows of the speech embedding."""
    if vocabulary.start is None or vocabulary.task is None:
        return tensors["llm_embedding.weight"]
    return tensors["speech_embedding.weight"][[vocabulary.start, vocabulary.task]]


@functools.cache
def _rotary_frequencies(theta: float, head_size: int, device: torch.device) -> Tensor:
    """Computed once on the CPU, so that every device rotates by the same angles, and cached for the
    next model.
    """
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
    return (1.0 / theta**exponents).to(device)


def _rotate(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rotation
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat([-second, first], dim=-1) * sin


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Causal attention of the last n positions over all T. query [n, heads, d], keys and values
    [kv_heads, T, d] -> [n, heads * d]. mask: [n, T], as of `scaled_dot_product_attention`; None
    where n is T. One position needs none.
    """
    if len(query) == 1:  # grouped by key head: no copy of the keys
        grouped = query.view(1, keys.shape[0], -1, query.shape[2])
        return F.scaled_dot_product_attention(grouped, keys[None], values[None]).reshape(1, -1)
    attended = F.scaled_dot_product_attention(
        query.transpose(0, 1)[None], keys[None], values[None], attn_mask=mask, is_causal=mask is None, enable_gqa=True
    )
    return attended[0].transpose(0, 1).reshape(len(query), -1)
