"""A chunk of prompts in one pass: up to CHUNK positions of one or several sequences, on fixed
memory, so that a CUDA graph can hold it.

A chunk writes only keys and values: the last input of a prompt is left to the decode step, which
samples after it. The chunk has one size, filled or not, so a position's numbers depend neither on
the other positions of the chunk nor on how the prompt is cut.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from services.llm.gpu.decode import Memory
from services.llm.gpu.kernels import attention, chunk
from services.llm.gpu.layout import CHUNK, PAGE, TILE, Stretch, describe
from services.llm.gpu.packing import PackedModel


class PrefillStep:
    """The pass over a chunk. `load` sets its contents, `launch` enqueues the kernels on the current
    stream.
    """

    def __init__(self, model: PackedModel, memory: Memory) -> None:
        self._model, self._memory = model, memory
        config, device = model.config, model.device
        self._precision = "ieee" if model.dtype == torch.float32 else "tf32"
        self._chunk = torch.zeros(3 * CHUNK + 3 * (CHUNK // TILE), dtype=torch.int32, device=device)
        sizes = [CHUNK] * 3 + [CHUNK // TILE] * 3
        self._inputs, self._positions, self._places, self._slots, self._begins, self._counts = torch.split(
            self._chunk, sizes
        )
        self._residual = torch.zeros(CHUNK, config.hidden_size, device=device)
        self._normed = torch.zeros(CHUNK, config.hidden_size, dtype=model.dtype, device=device)
        self._queries = torch.zeros(CHUNK, config.heads * config.head_size, dtype=model.dtype, device=device)
        self._attended = torch.zeros_like(self._queries)
        self._gated = torch.zeros(CHUNK, config.intermediate_size, dtype=model.dtype, device=device)

    def load(self, stretches: Sequence[Stretch]) -> None:
        """Copy the contents of the chunk to the device; at most CHUNK / TILE tiles.
        Asynchronous.
        """
        contents = describe(stretches)
        if self._chunk.is_cuda:
            contents = contents.pin_memory()
        self._chunk.copy_(contents, non_blocking=True)

    def launch(self) -> None:
        """Enqueue the whole pass. The last block stops after writing its keys and values."""
        model, config = self._model, self._model.config
        self._residual.copy_(F.embedding(self._inputs, model.table))
        self._add_and_norm(None)
        for index, layer in enumerate(model.layers):
            self._rotate(F.linear(self._normed, layer.qkv), layer.bias, index)
            if index + 1 == config.layers:
                break
            self._attend(index)
            self._add_and_norm(F.linear(self._attended, layer.out))
            self._add_and_norm(F.linear(self._gate(F.linear(self._normed, layer.gate_up)), layer.down))

    def _add_and_norm(self, change: Tensor | None) -> None:
        hidden = self._model.config.hidden_size
        chunk.add_and_norm[(CHUNK,)](
            self._residual, self._normed if change is None else change, self._normed, self._model.config.rms_norm_eps,
            HIDDEN=hidden,
            PADDED=1 << (hidden - 1).bit_length(), ADD=change is not None, num_warps=4,
        )  # fmt: skip

    def _rotate(self, joined: Tensor, bias: Tensor, index: int) -> None:
        model, config = self._model, self._model.config
        chunk.rotate_heads[(CHUNK,)](
            joined, bias, model.cosines, model.sines, self._positions, self._places, self._queries,
            self._memory.cache[index],
            QUERY=config.heads * config.head_size, KEYS=config.kv_width, D=config.head_size, PAGE=PAGE,
            PADDED=1 << (joined.shape[1] - 1).bit_length(), num_warps=4,
        )  # fmt: skip

    def _attend(self, index: int) -> None:
        config, memory = self._model.config, self._memory
        attention.attend_tile[(CHUNK // TILE, config.kv_heads)](
            self._queries, memory.cache[index], memory.pages, self._slots, self._begins, self._counts, self._attended,
            config.head_size**-0.5, memory.pages.shape[1], HEADS=config.heads, KEY_HEADS=config.kv_heads,
            D=config.head_size, PAGE=PAGE,
            G=1 << (config.heads // config.kv_heads - 1).bit_length(), TILE=TILE, PRECISION=self._precision,
            num_warps=8, num_stages=2,
        )  # fmt: skip

    def _gate(self, joined: Tensor) -> Tensor:
        width = self._model.config.intermediate_size
        chunk.gate[(CHUNK, -(-width // 1024))](joined, self._gated, MLP=width, BLOCK=1024, num_warps=4)
        return self._gated
