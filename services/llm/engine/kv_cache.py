"""Keys and values: of one sequence, a slot that is allocated before its first pass and freed when
it ends; and of voice prompts, with which every sentence of a voice begins.
"""

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor

from services.llm.generation.config import LlmConfig
from services.llm.generation.script import Input

BYTES_PER_VALUE = 4


def cache_bytes(config: LlmConfig, capacity: int) -> int:
    """Bytes of a cache that holds `capacity` positions: keys and values, all layers, float32."""
    return 2 * config.layers * config.kv_width * capacity * BYTES_PER_VALUE


@dataclass
class SequenceCache:
    """keys, values: float32 [layers, kv_heads, capacity, head_size]; the first `length` positions
    are filled.
    """

    keys: Tensor
    values: Tensor
    length: int = 0

    @classmethod
    def reserve(cls, config: LlmConfig, capacity: int, device: torch.device) -> "SequenceCache":
        """An empty slot for `capacity` positions on `device`, `cache_bytes(config, capacity)`
        bytes, not initialised.

        Raises torch.OutOfMemoryError (a RuntimeError on the CPU) when the device has no room for
        it.
        """
        shape = (config.layers, config.kv_heads, capacity, config.head_size)
        return cls(torch.empty(shape, device=device), torch.empty(shape, device=device))

    @property
    def capacity(self) -> int:
        """Number of positions that fit, filled or not."""
        return self.keys.shape[2]

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store new keys and values [n, kv_heads, head_size] after `length`; returns all of them,
        [kv_heads, length + n, head_size].

        The model advances `length` itself after the last layer.
        """
        end = self.length + keys.shape[0]
        self.keys[layer, :, self.length : end] = keys.transpose(0, 1)
        self.values[layer, :, self.length : end] = values.transpose(0, 1)
        return self.keys[layer, :, :end], self.values[layer, :, :end]


class PromptStates:
    """A cache of the keys and values of voice prompts. Not thread-safe.

    The key is the tuple of inputs, so that two voices never share an entry. The least recently used
    entries are evicted when all together exceed `limit_bytes`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._entries: OrderedDict[tuple[Input, ...], SequenceCache] = OrderedDict()
        self.bytes = 0
        """Memory of all entries, at most the limit."""

    def __len__(self) -> int:
        return len(self._entries)

    def restore(self, inputs: tuple[Input, ...], cache: SequenceCache) -> bool:
        """Fill an empty cache from the entry for `inputs`; False where there is none."""
        entry = self._entries.get(inputs)
        if entry is None:
            return False
        self._entries.move_to_end(inputs)
        cache.keys[:, :, : entry.length] = entry.keys
        cache.values[:, :, : entry.length] = entry.values
        cache.length = entry.length
        return True

    def store(self, inputs: tuple[Input, ...], cache: SequenceCache) -> None:
        """Store a copy of a cache that holds exactly `inputs`, unless it alone exceeds the
        limit.
        """
        filled = slice(0, cache.length)
        size = _bytes(cache) * cache.length // cache.capacity
        if size > self._limit:
            return
        while self.bytes + size > self._limit:
            self.bytes -= _bytes(self._entries.popitem(last=False)[1])
        self._entries[inputs] = SequenceCache(
            cache.keys[:, :, filled].clone(), cache.values[:, :, filled].clone(), cache.length
        )
        self.bytes += size


def _bytes(cache: SequenceCache) -> int:
    return cache.keys.nbytes + cache.values.nbytes
