"""Prefill of one sequence on a CPU: several positions in one pass. Buffers are allocated once, and
the last block computes only the last position.

Equal to `SpeechTokenModel.forward` within rounding. Allocating the buffers in every pass costs a
third of the pass in page faults.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import Layer, SpeechTokenModel, attend

MOST_ROWS = 256
"""Positions in one block: with more, reading the weights is no longer the bottleneck, and the
values between two products should fit into the CPU's cache.
"""


class ManyPositions:
    """Not thread-safe. rows: most positions in one block; the rounding of sums depends on it."""

    def __init__(self, model: SpeechTokenModel, rows: int = MOST_ROWS) -> None:
        config = model.config
        self._model, self._config, self._rows = model, config, rows
        self._query_width = config.heads * config.head_size
        self._hidden, self._normal = torch.empty(rows, config.hidden_size), torch.empty(rows, config.hidden_size)
        self._queries = torch.empty(rows, config.heads, config.head_size)
        self._keys_values = torch.empty(rows, 2, config.kv_heads, config.head_size)
        self._by_cosine = torch.empty(rows, max(config.heads, config.kv_heads), config.head_size)
        self._gate_up = torch.empty(rows, 2 * config.intermediate_size)

    def run(self, embeddings: Tensor, cache: SequenceCache) -> Tensor:
        """Run n >= 1 more positions, [n, hidden] -> [hidden], the state of the last one after the
        final norm; the cache grows by n.
        """
        *before, last = self._blocks(embeddings)
        for rows in before:
            self._block(rows, cache, last=False)
        return self._block(last, cache, last=True)

    def fill_cache(self, embeddings: Tensor, cache: SequenceCache) -> None:
        """Run n more positions, of which only the keys and values are needed."""
        for rows in self._blocks(embeddings):
            self._block(rows, cache, last=False)

    def _blocks(self, embeddings: Tensor) -> list[Tensor]:
        """The fewest blocks of nearly equal size: a block of few rows costs nearly as much as one
        of many.
        """
        count = len(embeddings)
        size = -(-count // -(-count // self._rows))
        return [embeddings[start : start + size] for start in range(0, count, size)]

    def _block(self, rows: Tensor, cache: SequenceCache, *, last: bool) -> Tensor:
        count, begin = len(rows), cache.length
        hidden = self._hidden[:count].copy_(rows)
        rotation = self._rotation(begin, count)
        mask = _mask(begin, count) if begin else None
        for index, layer in enumerate(self._model.layers):
            normal = self._normalize(hidden, layer.attention_norm)
            keys, values = self._store(index, layer, normal, rotation, cache)
            if layer is self._model.layers[-1]:
                if not last:
                    break
                hidden, normal = hidden[-1:], normal[-1:]
            hidden.addmm_(attend(self._query(layer, normal, rotation), keys, values, mask), layer.out.t())
            self._feed_forward(layer, hidden)
        cache.length = begin + count
        return self._normalize(hidden[-1:], self._model.norm)[0]

    def _store(
        self, index: int, layer: Layer, normal: Tensor, rotation: tuple[Tensor, Tensor], cache: SequenceCache
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of all positions so far, [kv_heads, length, head_size]."""
        keys_values = self._keys_values[: len(normal)]
        torch.addmm(
            layer.qkv_bias[self._query_width :], normal, layer.qkv[self._query_width :].t(), out=keys_values.flatten(1)
        )
        self._rotate(keys_values[:, 0], rotation)
        return cache.append(index, keys_values[:, 0], keys_values[:, 1])

    def _query(self, layer: Layer, normal: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """[n, heads, head_size] of the last n positions."""
        queries = self._queries[: len(normal)]
        torch.addmm(
            layer.qkv_bias[: self._query_width], normal, layer.qkv[: self._query_width].t(), out=queries.flatten(1)
        )
        self._rotate(queries, rotation)
        return queries

    def _feed_forward(self, layer: Layer, hidden: Tensor) -> None:
        gate_up = torch.mm(self._normalize(hidden, layer.mlp_norm), layer.gate_up.t(), out=self._gate_up[: len(hidden)])
        gate, up = gate_up.chunk(2, dim=-1)
        hidden.addmm_(F.silu(gate, inplace=True).mul_(up), layer.down.t())

    def _normalize(self, hidden: Tensor, weight: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True)
        scale = lengths.square_().div_(hidden.shape[-1]).add_(self._config.rms_norm_eps).rsqrt_()
        return torch.mul(hidden, scale, out=self._normal[: len(hidden)]).mul_(weight)

    def _rotation(self, begin: int, count: int) -> tuple[Tensor, Tensor]:
        """cos and sin, [n, 1, head_size / 2]."""
        angles = torch.arange(begin, begin + count, dtype=torch.float32)[:, None, None] * self._model.rotary_frequencies
        return angles.cos(), angles.sin()

    def _rotate(self, heads: Tensor, rotation: tuple[Tensor, Tensor]) -> None:
        """Rotate heads [n, heads, head_size] of the last n positions in place, as half-split
        pairs.
        """
        cosine, sine = rotation[0][-len(heads) :], rotation[1][-len(heads) :]
        first, second = heads.chunk(2, dim=-1)
        rotated = self._by_cosine[: heads.shape[0], : heads.shape[1]]
        rotated_first, rotated_second = rotated.chunk(2, dim=-1)
        torch.mul(first, cosine, out=rotated_first).addcmul_(second, sine, value=-1)
        torch.mul(second, cosine, out=rotated_second).addcmul_(first, sine)
        heads.copy_(rotated)


def _mask(begin: int, count: int) -> Tensor:
    """The causal mask [count, begin + count] of `count` positions after `begin` others, to be added
    to the scores: 0 for visible positions, else -inf.
    """
    return torch.full((count, begin + count), -torch.inf).triu_(begin + 1)
