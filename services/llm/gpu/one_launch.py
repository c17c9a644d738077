"""The decode step of one row as one launch: embedding, all layers and the head
(`kernels/one_launch.cu`).
"""

import ctypes
from collections.abc import Sequence
from importlib.resources import files

import torch
from torch import Tensor

from cosyserve.engines.cuda_kernels import Driver, LaunchShape, Module, compile_kernels
from services.llm.gpu.decode import Memory
from services.llm.gpu.packing import PackedModel
from services.llm.gpu.streams import Streams

STAGES = 5
"""Stages of 16 KiB in the ring of weights: with more, programs of the flow have no room beside."""
REGISTERS = 64
"""Most registers of a thread: with more, attention of the flow has no room beside."""
THREADS = 288
STAGE = 16384


def shared_bytes(stages: int, tiles: int) -> int:
    """Bytes of shared memory of a program: the ring and `Shared` of the kernel."""
    sums = 2 * (tiles * 16 + 1) * 8 * 4
    return stages * (STAGE + 16) + sums + 3 * 8 * 8 * 4 + 16 * 16 + tiles * 16 * 4 + 32 + 40


class _Arguments(ctypes.Structure):
    """`Arguments` of the kernel."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "weights", "plans", "bias", "head_bias", "cosines", "sines", "table", "cache",
        )),
        ("layer_bytes", ctypes.c_longlong),
        *((name, ctypes.c_void_p) for name in (
            "pages", "state", "rows", "exchange", "epoch", "logits", "fault", "trace",
        )),
        ("most_pages", ctypes.c_int),
        ("epsilon", ctypes.c_float),
    )  # fmt: skip


class OneLaunch:
    """rows int32 [1]: slot of the row; logits float32 [1, ids]: the result. `fault` int32 [1] is
    not 0 after a wait that had to be given up. extra: options of the compiler.
    """

    def __init__(
        self, model: PackedModel, memory: Memory, streams: Streams, rows: Tensor, logits: Tensor,
        *, source: str = "one_row.cu", stages: int = STAGES, registers: int = REGISTERS, under_way: int = 2, extra: Sequence[str] = (), cooperative: bool = True,
    ) -> None:  # fmt: skip
        config, device = model.config, model.device
        sizes = {
            "LAYERS": config.layers, "HIDDEN": config.hidden_size, "MLP": config.intermediate_size,
            "HEADS": config.heads, "KEY_HEADS": config.kv_heads, "IDS": config.speech.rows,
            "STAGES": stages, "REGISTERS": registers, "ROWS": len(rows), "MOST_TILES": streams.most_gated, "UNDER_WAY": under_way,
        }  # fmt: skip
        text = files("services.llm.gpu.kernels").joinpath(source).read_text()
        options = [*(f"-D{name}={value}" for name, value in sizes.items()), *extra]
        self.compiled = compile_kernels(text, torch.cuda.get_device_capability(device), options)
        driver = Driver()
        self._kernel = Module(self.compiled, driver).kernel("one_launch")
        self.programs = len(streams.plans) // 88
        self._shape = LaunchShape(
            grid=(self.programs, 1, 1), block=THREADS, shared=shared_bytes(stages, sizes["MOST_TILES"]),
            cooperative=cooperative,
        )  # fmt: skip
        words = 2 * (config.hidden_size // 2) + (config.heads + 2 * config.kv_heads) * config.head_size // 2
        words += config.intermediate_size // 2 + config.hidden_size + (4 if len(rows) <= 2 else 2) * config.hidden_size
        words *= len(rows)
        self._exchange = torch.zeros(words, dtype=torch.int64, device=device)
        self.epoch, self.fault = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
        self.trace = torch.zeros(self.programs, config.layers + 1, 16, dtype=torch.int64, device=device)
        self._kept = (model, memory, streams, rows, logits)
        pages = memory.cache[0]
        self._arguments = _Arguments(
            weights=streams.weights.data_ptr(), plans=streams.plans.data_ptr(), bias=streams.bias.data_ptr(),
            head_bias=streams.head_bias.data_ptr(), cosines=model.cosines.data_ptr(), sines=model.sines.data_ptr(),
            table=model.table.data_ptr(), cache=memory.cache.data_ptr(),
            layer_bytes=pages.numel() * pages.element_size(),
            pages=memory.pages.data_ptr(), state=memory.state.data_ptr(), rows=rows.data_ptr(),
            exchange=self._exchange.data_ptr(), epoch=self.epoch.data_ptr(), logits=logits.data_ptr(),
            fault=self.fault.data_ptr(), trace=self.trace.data_ptr(),
            most_pages=memory.pages.shape[1], epsilon=config.rms_norm_eps,
        )  # fmt: skip

    def launch(self) -> None:
        """Enqueue the step on the current stream."""
        self._kernel(self._shape, torch.cuda.current_stream().cuda_stream, self._arguments)
