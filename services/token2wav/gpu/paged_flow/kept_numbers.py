"""The type of the numbers in which pages keep the keys and values of the estimator."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class KeptNumbers:
    """dtype: of the numbers; None: that of the operands, without scales. largest: the number that
    the largest magnitude of a frame's head becomes. See `kernels.kept_numbers`.
    """

    dtype: torch.dtype | None = None
    largest: float = 1.0

    def ratio(self, operands: torch.dtype) -> int:
        """Numbers that take the place of one operand."""
        return 1 if self.dtype is None else operands.itemsize // self.dtype.itemsize

    def view(self, pool: Tensor) -> Tensor:
        """The memory of a pool of operands, as numbers."""
        return pool if self.dtype is None else pool.view(self.dtype)


AS_OPERANDS = KeptNumbers()
KEPT_NUMBERS: Mapping[str, KeptNumbers] = {
    "operands": AS_OPERANDS,
    "int8": KeptNumbers(torch.int8, 127.0),
    "float8": KeptNumbers(torch.float8_e4m3fn, 448.0),
}
"""By the setting gpu_kv_precision."""


def vectors_elements(frames: int, heads: int, width: int, ratio: int) -> int:
    """Elements of so many frames of keys or values, with their scales where there are any."""
    numbers = frames * heads * width
    return numbers if ratio == 1 else numbers // ratio + frames * heads
