"""The operands of one windowed convolution: buffers with margins, and what a launch reads, adds
and writes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from services.token2wav.gpu.device.launcher import ceil
from services.token2wav.gpu.windowed_vocoder.convolutions import Snakes

MARGIN = 64
"""Columns before and after a buffer, because convolutions read beyond its edges; results there are
not used.
"""


TILE_ROWS = 256
"""Maximum number of rows of a tile."""


class Columns:
    """A buffer of `variants` times `rows` columns, with margins."""

    def __init__(self, variants: int, rows: int, channels: int, dtype: torch.dtype, device: torch.device) -> None:
        # Rounded up, because the last tile reads and writes whole rows.
        self.rows = rows = ceil(rows, TILE_ROWS) * TILE_ROWS
        memory = torch.zeros((variants * rows + 2 * MARGIN) * channels, dtype=dtype, device=device)
        self.tensor, self._whole = memory[MARGIN * channels :], memory.view(-1, channels)

    def described(self, rows: int, channels: int) -> TensorDescriptor:
        """A TMA descriptor of its blocks, margins included."""
        return TensorDescriptor.from_tensor(self._whole, [rows, channels])


@dataclass(frozen=True)
class OutputColumns:
    """The columns that a convolution writes: `count` of each of `batch` windows, from column
    `start` on of a layer with `rate` columns per frame, which has `extra` columns after the end of
    the sentence. ends: first frames of the windows, and the ends of their sentences in frames.
    """

    ends: tuple[Tensor, Tensor]
    batch: int
    count: int
    start: int
    rate: int
    extra: int = 0


@dataclass(frozen=True)
class Residual:
    """What is added: `columns` per window, from `shift` on. variants: number of variants that are
    averaged with the result. shared: one buffer for all variants.
    """

    source: Columns
    columns: int
    shift: int = 0
    variants: int = 1
    shared: bool = False


@dataclass(frozen=True)
class Output:
    """Where the result is stored. raw: before the activation. active: after the activation, which
    is snake with `snakes`, or leaky with `slope`.
    """

    raw: Columns | None = None
    active: Columns | None = None
    snakes: Snakes | None = None
    slope: float = 0.0


@dataclass(frozen=True)
class Input:
    """`columns` per window, the first position at column `shift`. step: columns from one position
    to the next, of `unit` elements each; unit 0: as many as there are channels.
    """

    source: Columns
    columns: int
    shift: int = 0
    unit: int = 0
    step: int = 1
