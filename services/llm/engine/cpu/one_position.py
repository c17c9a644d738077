"""Decoding of one position of one sequence on a CPU, where the overhead of calling an operator is
as large as its arithmetic.

All buffers are allocated once. PyTorch computes matrix products, attention and SiLU; numpy, whose
calls cost less, computes the norms and the rotary embedding on the same memory. The result equals
`SpeechTokenModel.forward` of one row within rounding. What remains is mostly the time to read the
weights from memory.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.script import Input

Floats = NDArray[np.float32]


class OnePosition:
    """Runs `model`, whose weights are float32 on the CPU, one position at a time.

    Not thread-safe: all calls share the buffers. NaN and infinities propagate without a numpy
    warning, because the caller checks the scores.
    """

    def __init__(self, model: SpeechTokenModel) -> None:
        config = model.config
        self._epsilon, self._width = config.rms_norm_eps, config.hidden_size
        self._tables = [table.numpy() for table in model.tables]
        self._norms = [(layer.attention_norm.numpy(), layer.mlp_norm.numpy()) for layer in model.layers]
        self._layers, self._last_norm = model.layers, model.norm.numpy()
        self._frequencies: Floats = model.rotary_frequencies.numpy()
        self._hidden, self._normalized = torch.empty(config.hidden_size), torch.empty(config.hidden_size)
        self._hidden_array, self._normalized_array = self._hidden.numpy(), self._normalized.numpy()
        self._gate_up = torch.empty(2 * config.intermediate_size)
        self._gate, self._up = self._gate_up.chunk(2)
        queries, keys, half = config.heads, config.kv_heads, config.head_size // 2
        self._joined = torch.empty((queries + 2 * keys) * config.head_size)
        # The following arrays are views of `_joined`. `_swapped` exchanges the halves of each head.
        heads = self._joined.numpy().reshape(queries + 2 * keys, 2, half)
        self._rotated, self._swapped = heads[: queries + keys], heads[: queries + keys, ::-1]
        self._keys = heads[queries : queries + keys].reshape(keys, -1)
        self._values = heads[queries + keys :].reshape(keys, -1)
        # The query heads that share a key head form one group.
        self._query = self._joined[: queries * config.head_size].view(1, keys, queries // keys, config.head_size)
        self._by_cosine, self._by_sine = np.empty_like(self._rotated), np.empty_like(self._rotated)
        self._cosine, self._sine = np.empty((2, half), np.float32), np.empty((2, half), np.float32)

    def run(self, item: Input, cache: SequenceCache) -> Tensor:
        """The hidden state of `item` after the final norm, float32 [hidden]: a buffer that the next
        call overwrites. The cache grows by 1.

        Raises IndexError when the cache is full.
        """
        # Entering the context takes negligible time. Without it numpy would print a warning when
        # a value is not finite.
        with np.errstate(all="ignore"):
            return self._run(item, cache)

    def _run(self, item: Input, cache: SequenceCache) -> Tensor:
        position, hidden = cache.length, self._hidden
        self._hidden_array[:] = self._tables[item.table][item.row]
        self._set_rotation(position)
        stored_keys, stored_values = cache.keys.numpy(), cache.values.numpy()
        seen_keys, seen_values = (
            cache.keys[:, None, :, : position + 1].unbind(),
            cache.values[:, None, :, : position + 1].unbind(),
        )
        for index, layer in enumerate(self._layers):
            attention_norm, mlp_norm = self._norms[index]
            self._normalize(attention_norm)
            torch.addmv(layer.qkv_bias, layer.qkv, self._normalized, out=self._joined)
            self._rotate()
            stored_keys[index, :, position], stored_values[index, :, position] = self._keys, self._values
            attended = F.scaled_dot_product_attention(self._query, seen_keys[index], seen_values[index])
            hidden.addmv_(layer.out, attended.view(-1))
            self._normalize(mlp_norm)
            torch.mv(layer.gate_up, self._normalized, out=self._gate_up)
            F.silu(self._gate, inplace=True).mul_(self._up)
            hidden.addmv_(layer.down, self._gate)
        cache.length = position + 1
        self._normalize(self._last_norm)
        return self._normalized

    def _normalize(self, weight: Floats) -> None:
        """RMS norm of the hidden state, written to `_normalized`. weight: [hidden]."""
        values = self._hidden_array
        scale = 1.0 / math.sqrt(float(values.dot(values)) / self._width + self._epsilon)
        np.multiply(values, weight, out=self._normalized_array)
        self._normalized_array *= np.float32(scale)

    def _set_rotation(self, position: int) -> None:
        """Set cosine and signed sine of the rotary embedding, [2, head_size / 2]; the first row of
        the sine is negated.
        """
        angles = np.float32(position) * self._frequencies
        self._cosine[:] = np.cos(angles)
        np.sin(angles, out=self._sine[1])
        np.negative(self._sine[1], out=self._sine[0])

    def _rotate(self) -> None:
        """Apply the rotary embedding to queries and keys in place. Each pair has one value from
        either half of the head: first * cos - second * sin, second * cos + first * sin.
        """
        np.multiply(self._rotated, self._cosine, out=self._by_cosine)
        np.multiply(self._swapped, self._sine, out=self._by_sine)
        np.add(self._by_cosine, self._by_sine, out=self._rotated)
