"""An Euler step of a small batch as one launch of thread-block clusters."""

import ctypes
import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.engines.cuda_kernels import Compiled, CompileError, DriverError, LaunchShape, Module, compile_kernels
from cosyserve.engines.kernel_cache import Unsuitable
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.unet.weights import UnetConfig
from services.token2wav.gpu.clusters.packing import chunk_sizes, constants, packed
from services.token2wav.gpu.paged_flow.kept_numbers import AS_OPERANDS, KeptNumbers
from services.token2wav.gpu.paged_flow.page_layout import Layout
from services.token2wav.gpu.paged_flow.unit_table import TABLE, UnitTable
from services.token2wav.gpu.paged_flow.weights import Level, Product

log = logging.getLogger(__name__)
SOURCE = Path(__file__).parent / "source"
PARTS = ("layout", "instructions", "program", "products", "exchange", "convolutions", "attention", "estimator")
"""Files of the source, in the order in which they are compiled as one."""
CAPABILITY = (9, 0)
"""Only Hopper has the instructions of the source: its asynchronous matrix products are in no later
architecture.
"""
CLUSTER, THREADS, SHARED_BYTES = 16, 512, 232_448
SIZES = (256, 8, 64, 4)
"""Channels, heads, width of a head, transformers of a level."""
MOST_UNITS = 2
"""Two units take four clusters. Of more, not all would be on an H100 at the same time."""


class _Arguments(ctypes.Structure):
    """`Arguments` of the source."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("inputs", "y", "weights", "sizes", "constants", "times", "pool")),
        *((name, ctypes.c_void_p) for name in ("own", "before", "pages", "counts", "valid")),
        *((name, ctypes.c_longlong) for name in ("rank_bytes", "page", "offset", "layer_stride", "tails")),
        *((name, ctypes.c_int) for name in ("levels", "table")),
    )


class ClusteredStep:
    """The kernel, and the estimator's weights as its programs read them (132 MB at the published
    sizes, beside those of larger batches).
    """

    most = MOST_UNITS

    def __init__(
        self, compiled: Compiled, levels: Sequence[Level], ends: tuple[Product, Product, Product], chained: bool
    ) -> None:
        self._kernel = Module(compiled).kernel("estimator_step")
        self._chained, self._levels = chained, len(levels)
        self.clusters = self._kernel.at_once(self._shape(1))
        """How many are on the device at the same time if it is idle."""
        self._weights, self._constants = packed(levels, *ends), constants(levels, *ends)
        self._times = torch.stack([level.times for level in levels], dim=1).contiguous()
        self._sizes = torch.tensor(chunk_sizes(self._levels), dtype=torch.int32, device=self._weights.device)

    def _shape(self, units: int) -> LaunchShape:
        return LaunchShape((units * ROWS * CLUSTER, 1, 1), THREADS, SHARED_BYTES, CLUSTER, self._chained)

    def __call__(
        self, step: int, inputs: Tensor, y: Tensor, table: UnitTable, pool: Tensor, layout: Layout, units: int
    ) -> None:
        """inputs bfloat16 [units, 2, 50, 320] -> y float32 [units, 2, 50, 256], the convolution
        before the last norm. Of streams with at most 8 blocks, none twice.
        """
        arguments = _Arguments(
            inputs.data_ptr(), y.data_ptr(), self._weights.data_ptr(), self._sizes.data_ptr(),
            self._constants.data_ptr(), self._times[step].data_ptr(), pool.data_ptr(), table["own"].data_ptr(),
            table["before"].data_ptr(), table["pages"].data_ptr(), table["counts"].data_ptr(),
            table["frames"].data_ptr(), self._weights.shape[1] * self._weights.element_size(), layout.elements,
            layout.attention(step, 0), layout.attention(step, 1) - layout.attention(step, 0), layout.tail(step, "in"),
            self._levels, TABLE,
        )  # fmt: skip
        self._kernel(self._shape(units), torch.cuda.current_stream().cuda_stream, arguments)


def source() -> str:
    """CUDA C++ of the kernel."""
    return "\n".join((SOURCE / f"{part}.cu").read_text(encoding="utf-8") for part in PARTS)


def capability_of(device: torch.device) -> tuple[int, int] | None:
    """The compute capability, None of a device that is no GPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def clustered_step(
    config: UnetConfig, levels: Sequence[Level], ends: tuple[Product, Product, Product], dtype: torch.dtype,
    chained: bool, kept: KeptNumbers = AS_OPERANDS,
) -> ClusteredStep | None:  # fmt: skip
    """The step for this device, network, and numbers of operands and pages. None, and a line in the
    log that says why, where it cannot be served: the estimator's other kernels compute every batch.
    """
    try:
        _check(config, capability_of(ends[0].weight.device), dtype, kept)
        step = ClusteredStep(compile_kernels(source(), CAPABILITY), levels, ends, chained)
        if step.clusters < MOST_UNITS * ROWS:
            raise Unsuitable(f"the device runs {step.clusters} of its clusters at the same time")
    except (Unsuitable, DriverError) as error:
        expected = not isinstance(error, (CompileError, DriverError))
        log.log(
            logging.INFO if expected else logging.WARNING,
            "small batches are not computed in thread-block clusters, which takes longer: %s",
            error,
        )
        return None
    return step


def _check(config: UnetConfig, capability: tuple[int, int] | None, dtype: torch.dtype, kept: KeptNumbers) -> None:
    if capability != CAPABILITY:
        raise Unsuitable("the kernel is written for compute capability 9.0")
    if dtype != torch.bfloat16 or kept.dtype is not None:
        raise Unsuitable("the kernel multiplies bfloat16 and reads keys and values in bfloat16")
    sizes = (config.channels, config.estimator_heads, config.head_width, config.transformers)
    if sizes != SIZES:
        raise Unsuitable(
            f"the kernel is written for channels, heads, their width and transformers {SIZES}, not {sizes}"
        )
