"""Keys and values of one sequence: a slot that is allocated before its first pass and freed when it
ends.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.llm.generation.config import LlmConfig

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
