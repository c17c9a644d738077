"""An Euler step of small batches as one launch of thread-block clusters."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.engines.cuda_kernels import Kernel, LaunchShape, Module, compile_kernels
from services.token2wav.flow.solver import ROWS
from services.token2wav.gpu.clusters.packing import chunk_sizes, constants, packed
from services.token2wav.gpu.paged_flow.page_layout import Layout
from services.token2wav.gpu.paged_flow.unit_table import TABLE, UnitTable
from services.token2wav.gpu.paged_flow.weights import Level, Product

SOURCE = Path(__file__).with_name("estimator.cu")
CLUSTER, THREADS, SHARED_BYTES = 16, 512, 232448


class _Arguments(ctypes.Structure):
    """`Arguments` of the source."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("inputs", "y", "weights", "sizes", "constants", "times", "pool")),
        *((name, ctypes.c_void_p) for name in ("own", "before", "pages", "counts", "valid")),
        *((name, ctypes.c_longlong) for name in ("rank_bytes", "page", "offset", "layer_stride", "tails")),
        *((name, ctypes.c_int) for name in ("levels", "table")),
        ("stamps", ctypes.c_void_p),
    )


class ClusteredStep:
    """Weights as the clusters read them (as many bytes as the estimator's transformers and resnets
    in bfloat16, once more), and the kernel.
    """

    def __init__(
        self, levels: Sequence[Level], down_end: Product, up_end: Product, final: Product, options: Sequence[str] = ()
    ) -> None:
        self._weights, self._constants = packed(levels, down_end, up_end, final), constants(levels, down_end, up_end, final)
        self._times = torch.stack([level.times for level in levels], dim=1).contiguous()
        self._levels = len(levels)
        self._sizes = torch.tensor(chunk_sizes(self._levels), dtype=torch.int32, device=self._weights.device)
        device = self._weights.device
        code = compile_kernels(SOURCE.read_text(), torch.cuda.get_device_capability(device), options)
        self.log = code.log
        self._kernel: Kernel = Module(code).kernel("estimator_step")
        self.stamps = torch.zeros(64 * 32, dtype=torch.int64, device=device)

    def shape(self, units: int, chained: bool = True) -> LaunchShape:
        """Of a pass over `units` units."""
        return LaunchShape((units * ROWS * CLUSTER, 1, 1), THREADS, SHARED_BYTES, CLUSTER, chained)

    def at_once(self) -> int:
        """Clusters on the device at the same time."""
        return self._kernel.at_once(self.shape(4))

    def __call__(
        self, step: int, inputs: Tensor, y: Tensor, table: UnitTable, pool: Tensor, layout: Layout, units: int,
        chained: bool,
    ) -> None:  # fmt: skip
        """inputs bfloat16 [units, 2, 50, 320] -> y float32 [units, 2, 50, 256], the convolution
        before the last norm.
        """
        arguments = _Arguments(
            inputs.data_ptr(), y.data_ptr(), self._weights.data_ptr(), self._sizes.data_ptr(), self._constants.data_ptr(),
            self._times[step].data_ptr(), pool.data_ptr(), table["own"].data_ptr(), table["before"].data_ptr(),
            table["pages"].data_ptr(), table["counts"].data_ptr(), table["frames"].data_ptr(),
            self._weights.shape[1] * self._weights.element_size(), layout.elements, layout.attention(step, 0),
            layout.attention(step, 1) - layout.attention(step, 0), layout.tail(step, "in"), self._levels, TABLE,
            self.stamps.data_ptr(),
        )  # fmt: skip
        self._kernel(self.shape(units, chained), torch.cuda.current_stream().cuda_stream, arguments)
