"""What the diffusion transformers have in common as sequences of kernels: a residual stream, norms
that the time scales and shifts, attention over pages and a feed-forward.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.spec import CHUNK_FRAMES, MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.solver import ROWS, euler_schedule
from services.token2wav.gpu.device.launcher import Launcher, Tile, ceil, power
from services.token2wav.gpu.kernels.attention import joined_parts, paged_attention
from services.token2wav.gpu.kernels.euler import prepare
from services.token2wav.gpu.kernels.modulated import gated_onto_stream, modulated_euler_step, modulated_gelu
from services.token2wav.gpu.paged_flow.dit.weights import TimedProduct
from services.token2wav.gpu.paged_flow.kept_numbers import AS_OPERANDS, KeptNumbers
from services.token2wav.gpu.paged_flow.unit_table import TABLE, UnitTable
from services.token2wav.gpu.paged_flow.weights import Product

_EPSILON = 1e-6
_SMALLEST_PART = 16
"""Columns of the narrowest part of which a stream's moments are kept."""


@dataclass(frozen=True)
class Sizes:
    """Layer sizes. width: of the stream. padded: whether a stream's first unit may begin with
    padding. smallest_part: columns of the narrowest part of which moments are kept.
    """

    width: int
    heads: int
    head_width: int
    feed_forward: int
    guidance: float
    padded: bool = False
    smallest_part: int = _SMALLEST_PART

    @property
    def inner(self) -> int:
        """Width of the attention."""
        return self.heads * self.head_width


class PageOfTransformer(Protocol):
    """The part of a page's layout that is used here."""

    @property
    def elements(self) -> int:
        """Size of a page."""

    def attention(self, step: int, block: int) -> int:
        """Keys and values of a block in Euler step `step`."""


class FeedForward(Protocol):
    """A block's weights from its second norm on."""

    widen: TimedProduct
    narrow: Product
    feed_gate: Tensor


class StreamBuffers:
    """For a pass over at most `most` units; the state of streams is in the pool's pages.

    splits: parts of the keys of one query that are processed in parallel, in `long` passes of at
    most split_units units. kept: the type of keys and values in pages. Raises Unsuitable for heads
    that the attention's kernel cannot take.
    """

    def __init__(
        self, sizes: Sizes, most: int, dtype: torch.dtype, launch: Launcher, device: torch.device, splits: int,
        split_units: int, kept: KeptNumbers = AS_OPERANDS,
    ) -> None:  # fmt: skip
        if sizes.head_width != power(sizes.head_width):
            raise Unsuitable(f"the paged engine computes heads whose width is a power of two, not {sizes.head_width}")
        self.dt = [dt for _, dt in euler_schedule()]
        self.sizes, self.launch, self.splits, self.split_units = sizes, launch, splits, split_units
        self.clustered_units = 0
        self.kept = kept
        self.described = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)
        """Whether tiles can be loaded by TMA descriptors, from Hopper on."""
        rows, width = most * ROWS * CHUNK_FRAMES, sizes.width
        split_rows = splits * min(most, split_units) * ROWS * CHUNK_FRAMES

        def zeros(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self.x = zeros(most, CHUNK_FRAMES, MEL_BINS)
        """The mel between Euler steps, float32 [units, 50, 80]; after the last step, the result."""
        self.joined = zeros(rows, 4 * MEL_BINS, kind=dtype)
        self.stream, self.copy = zeros(rows, width), zeros(rows, width, kind=dtype)
        self.moments = zeros(rows, ceil(width, sizes.smallest_part), 2)
        self.queries, self.attended = (zeros(rows, sizes.inner, kind=dtype) for _ in range(2))
        self.wide = zeros(rows, sizes.feed_forward, kind=dtype)
        self.parts, self.norms = zeros(split_rows, sizes.inner, kind=dtype), zeros(split_rows, sizes.heads)

    def prepare(
        self, mu: Tensor, noise: Tensor, table: UnitTable, pool: Tensor, layout: PageOfTransformer, units: int
    ) -> None:
        """Write the first step's input: mu float32 [units, 50, 80], noise float32 [15000, 80]."""
        self.launch(
            prepare, (units, CHUNK_FRAMES), mu, table.speaker, table.condition, noise, table["position"], self.x,
            self.joined, pool, table["own"], layout.elements, 0, 0, FRAMES=CHUNK_FRAMES, BINS=MEL_BINS,
            BP=power(MEL_BINS), STEPS=0, warps=1,
        )  # fmt: skip


class TransformerPass:
    """The launches of one Euler step over the first `units` units of the table. splits: parts of
    the keys.
    """

    def __init__(
        self, buffers: StreamBuffers, step: int, table: UnitTable, pool: Tensor, layout: Any, units: int,
        splits: int,
    ) -> None:  # fmt: skip
        self._b, self._step, self._table, self._pool, self._layout = buffers, step, table, pool, layout
        self._units, self._rows, self._splits = units, units * ROWS * CHUNK_FRAMES, splits
        self._launch, self._width = buffers.launch, buffers.sizes.width
        self._kept_pool, self._ratio = buffers.kept.view(pool), buffers.kept.ratio(pool.dtype)
        self._part = 0
        """Columns of each part of the stream's moments: those of the kernel that wrote it last."""

    def tile(self, kind: str, rows: int | None = None) -> Tile:
        """For a product of so many rows, by default those of the stream."""
        tile = self._launch.tile(kind, self._rows if rows is None else rows)
        return tile if self._b.described or not tile.described else _undescribed(tile)

    def attended(self, block: int) -> None:
        """From the queries, and keys and values in pages, to the heads' results."""
        b, sizes, tile = self._b, self._b.sizes, self.tile("dit attention")
        self._launch(
            paged_attention, (self._units * ROWS, sizes.heads, self._splits), b.queries, self._pool,
            self._kept_pool, self._table["pages"], self._table["counts"], self._table["frames"], self._table["skipped"],
            b.parts if self._splits > 1 else b.attended, b.norms, self._rows, self._layout.elements,
            self._layout.attention(self._step, block), TABLE=TABLE, FRAMES=CHUNK_FRAMES, FP=power(CHUNK_FRAMES),
            RATIO=self._ratio, ROWS=ROWS, HEADS=sizes.heads, WIDTH=sizes.head_width, SPLITS=self._splits, LEAST=2,
            SKIP=MEL_FRAMES_PER_TOKEN if sizes.padded else 0, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        if self._splits > 1:
            self._launch(
                joined_parts, (self._rows,), b.parts, b.norms, b.attended, self._rows, HEADS=sizes.heads,
                WIDTH=sizes.head_width, INNER=power(sizes.inner), SPLITS=self._splits,
            )  # fmt: skip

    def feed_forward(self, weights: FeedForward, following: TimedProduct) -> None:
        """Add a block's feed-forward to the stream. following: what reads it then."""
        b, tile, wide = self._b, self.tile("dit widen"), self._b.sizes.feed_forward
        self._launch(
            modulated_gelu, (ceil(wide, tile.columns), ceil(self._rows, tile.rows)), left(b.copy, tile), b.moments,
            weights.widen.gained[self._step], right(weights.widen.weight, tile), weights.widen.bias[self._step],
            b.wide, self._rows, N=wide, K=self._width, **self.normed(), DESCRIBED=tile.described, BM=tile.rows,
            BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        self.onto(b.wide, weights.narrow, weights.feed_gate, following, "dit narrow")

    def onto(
        self, a: Tensor, weights: Product, gates: Tensor | None, following: TimedProduct | None, kind: str
    ) -> None:
        """Add a gated product to the stream, or, without gates, make it the stream. following: the
        product that reads the stream next; None: something else does, which takes x alone.
        """
        b, tile = self._b, self.tile(kind)
        self._launch(
            gated_onto_stream, (ceil(self._width, tile.columns), ceil(self._rows, tile.rows)), left(a, tile),
            right(weights.weight, tile), weights.bias, weights.bias if gates is None else gates[self._step], b.stream,
            b.copy, b.moments, weights.bias if following is None else following.gain[self._step], self._rows,
            N=self._width, K=a.shape[1], ONTO=gates is not None, KEPT=following is not None, DESCRIBED=tile.described,
            BM=tile.rows, BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        if following is not None:
            self._part = tile.columns

    def normed(self) -> dict[str, int | float]:
        """How kernels find the stream's moments."""
        return {"PART": self._part, "PP": power(ceil(self._width, self._part)), "EPS": _EPSILON}

    def euler_step(self, last: TimedProduct) -> None:
        """Move the mel by the velocity that the stream stands for."""
        b, tile = self._b, self.tile("dit velocity")
        self._launch(
            modulated_euler_step, (self._units, ceil(CHUNK_FRAMES, tile.rows), ceil(MEL_BINS, tile.columns)), b.copy,
            b.moments, last.gained[self._step], last.weight, last.bias[self._step], b.x, b.joined, b.dt[self._step],
            b.sizes.guidance, N=self._width, **self.normed(), FRAMES=CHUNK_FRAMES, BINS=MEL_BINS, BM=tile.rows,
            BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip


def _undescribed(tile: Tile) -> Tile:
    """For a GPU without descriptors; its multiprocessors have 99 KB for a program's operands."""
    return Tile(tile.rows, min(tile.columns, 128), min(tile.inner, 64), tile.warps, 3)


def left(a: Tensor, tile: Tile) -> Any:
    """The left operand of a product, a descriptor where the tile wants one."""
    return TensorDescriptor.from_tensor(a, [tile.rows, tile.inner]) if tile.described else a


def right(weight: Tensor, tile: Tile, columns: int = 0) -> Any:
    """The same for weights. columns: those of the tile unless given."""
    return TensorDescriptor.from_tensor(weight, [columns or tile.columns, tile.inner]) if tile.described else weight
