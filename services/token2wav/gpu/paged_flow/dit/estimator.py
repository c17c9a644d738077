"""The diffusion transformer as a sequence of kernels: the arithmetic of `flow.dit.estimator` over
paged state, five launches a block.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.spec import CHUNK_FRAMES, MAX_FLOW_FRAMES, MEL_BINS
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.dit.weights import POSITION_GROUPS, POSITION_TAPS, DitConfig
from services.token2wav.flow.layers import Tensors
from services.token2wav.flow.solver import ROWS, euler_schedule
from services.token2wav.gpu.device.launcher import Launcher, Tile, ceil, divisor, power
from services.token2wav.gpu.kernels.attention import joined_parts, paged_attention
from services.token2wav.gpu.kernels.euler import prepare
from services.token2wav.gpu.kernels.modulated import (
    gated_onto_stream,
    joined_inputs,
    modulated_euler_step,
    modulated_gelu,
    modulated_queries_keys_values,
)
from services.token2wav.gpu.kernels.position_convolution import position_convolution
from services.token2wav.gpu.paged_flow.dit.page_layout import POSITION_FRAMES, DitLayout
from services.token2wav.gpu.paged_flow.dit.weights import (
    DitBlock,
    DitInputs,
    TimedProduct,
    last_product,
    time_embeddings,
    turns,
)
from services.token2wav.gpu.paged_flow.kept_numbers import AS_OPERANDS, KeptNumbers
from services.token2wav.gpu.paged_flow.unit_table import TABLE, UnitTable
from services.token2wav.gpu.paged_flow.weights import Product

_EPSILON = 1e-6
_SMALLEST_PART = 16
"""Columns of the narrowest part of which a stream's moments are kept."""


class PagedDit:
    """Weights, and buffers for a pass over at most `most` units; the state of streams is in the
    pool's pages.

    splits: parts of the keys of one query that are processed in parallel, in `long` passes of at
    most split_units units. kept: the type of keys and values in pages. Raises Unsuitable for heads
    that the attention's kernel cannot take.
    """

    def __init__(
        self, config: DitConfig, tensors: Mapping[str, Tensor], most: int, dtype: torch.dtype, launch: Launcher,
        splits: int = 4, split_units: int = 4, kept: KeptNumbers = AS_OPERANDS,
    ) -> None:  # fmt: skip
        if config.head_width != power(config.head_width):
            raise Unsuitable(f"the paged engine computes heads whose width is a power of two, not {config.head_width}")
        weights = Tensors(tensors).within(ESTIMATOR[:-1])
        device = weights["proj_out.bias"].device
        times = time_embeddings(weights, device)
        self._inputs = DitInputs(weights.within("input_embed"), dtype)
        self._blocks = [
            DitBlock(weights.within(f"transformer_blocks.{at}"), times, config.head_width, dtype)
            for at in range(config.depth)
        ]
        self._last = last_product(weights, times, dtype)
        self._turns = turns(weights, MAX_FLOW_FRAMES)
        self._dt = [dt for _, dt in euler_schedule()]
        self._config, self._launch, self._splits, self.split_units = config, launch, splits, split_units
        self._kept = kept
        self.described = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)
        """Whether tiles can be loaded by TMA descriptors, from Hopper on."""
        rows, width = most * ROWS * CHUNK_FRAMES, config.width
        split_rows = splits * min(most, split_units) * ROWS * CHUNK_FRAMES

        def zeros(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self.x = zeros(most, CHUNK_FRAMES, MEL_BINS)
        """The mel between Euler steps, float32 [units, 50, 80]; after the last step, the result."""
        self._joined = zeros(rows, 4 * MEL_BINS, kind=dtype)
        self._stream, self._copy = zeros(rows, width), zeros(rows, width, kind=dtype)
        self._moments = zeros(rows, ceil(width, min(_SMALLEST_PART, width // POSITION_GROUPS)), 2)
        self._between, self._queries, self._attended = (zeros(rows, width, kind=dtype) for _ in range(3))
        self._wide = zeros(rows, config.feed_forward, kind=dtype)
        self._parts, self._norms = zeros(split_rows, width, kind=dtype), zeros(split_rows, config.heads)

    def prepare(self, mu: Tensor, noise: Tensor, table: UnitTable, pool: Tensor, layout: DitLayout, units: int) -> None:
        """Write the first step's input: mu float32 [units, 50, 80], noise float32 [15000, 80]."""
        self._launch(
            prepare, (units, CHUNK_FRAMES), mu, table.speaker, table.condition, noise, table["position"], self.x,
            self._joined, pool, table["own"], layout.elements, 0, 0, FRAMES=CHUNK_FRAMES, BINS=MEL_BINS,
            BP=power(MEL_BINS), STEPS=0, warps=1,
        )  # fmt: skip

    def step(
        self, step: int, table: UnitTable, pool: Tensor, layout: DitLayout, units: int, *, long: bool = False
    ) -> None:
        """Euler step 0..9 of the first `units` units. long: for streams with many pages, see
        `splits`.
        """
        call = _Pass(self, step, table, pool, layout, units, self._splits if long else 1)
        call.inputs()
        for at, block in enumerate(self._blocks):
            call.attend(block, at)
            call.feed_forward(block, self._blocks[at + 1].qkv if at + 1 < len(self._blocks) else self._last)
        call.euler_step()


class _Pass:
    """The launches of one Euler step over the first `units` units of the table. splits: parts of
    the keys.
    """

    def __init__(
        self, owner: PagedDit, step: int, table: UnitTable, pool: Tensor, layout: DitLayout, units: int, splits: int
    ) -> None:
        self._o, self._step, self._table, self._pool, self._layout = owner, step, table, pool, layout
        self._units, self._rows, self._splits = units, units * ROWS * CHUNK_FRAMES, splits
        self._launch, self._width = owner._launch, owner._config.width
        self._kept_pool, self._ratio = owner._kept.view(pool), owner._kept.ratio(pool.dtype)
        self._part = 0
        """Columns of each part of the stream's moments: those of the kernel that wrote it last."""

    def _tile(self, kind: str) -> Tile:
        tile = self._launch.tile(kind, self._rows)
        return tile if self._o.described or not tile.described else _undescribed(tile)

    def inputs(self) -> None:
        """The joined inputs and their position become the stream."""
        o, width, project = self._o, self._width, self._o._inputs.project
        tile = self._tile("dit in")
        first, second = (self._layout.position_tail(self._step, at) for at in (0, 1))
        self._launch(
            joined_inputs, (ceil(width, tile.columns), ceil(self._rows, tile.rows)), o._joined, project.weight,
            project.bias, o._stream, o._copy, self._pool, self._table["own"], self._rows, self._layout.elements, first,
            N=width, K=4 * MEL_BINS, FRAMES=CHUNK_FRAMES, ROWS=ROWS, KEPT=POSITION_FRAMES, BM=tile.rows,
            BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        self._position(o._inputs.positions[0], o._copy, o._between, first, second, onto=False)
        self._position(o._inputs.positions[1], o._between, o._copy, second, 0, onto=True)
        self._part = width // POSITION_GROUPS

    def _position(self, weights: Product, a: Tensor, out: Tensor, tail: int, out_tail: int, *, onto: bool) -> None:
        o, tile, group = self._o, self._tile("dit position"), self._width // POSITION_GROUPS
        self._launch(
            position_convolution, (POSITION_GROUPS, ceil(self._rows, tile.rows)), a, weights.weight, weights.bias, out,
            o._stream, o._moments, o._blocks[0].qkv.gain[self._step], self._pool, self._table["own"],
            self._table["before"], self._rows, self._layout.elements, tail, out_tail, N=self._width, GROUP=group,
            GP=power(group), FRAMES=CHUNK_FRAMES, ROWS=ROWS, TAPS=POSITION_TAPS, ONTO=onto, BM=tile.rows, BK=tile.inner,
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip

    def attend(self, weights: DitBlock, block: int) -> None:
        """Add a block's attention to the stream."""
        o, width, heads, offset = self._o, self._width, self._o._config.heads, self._layout.attention(self._step, block)
        tile = self._tile("dit qkv")
        columns = divisor(width, tile.columns)
        if self._ratio > 1:
            columns = max(columns, o._config.head_width)  # a scale is of a whole head
        self._launch(
            modulated_queries_keys_values, (3 * width // columns, ceil(self._rows, tile.rows)),
            _left(o._copy, tile), o._moments, weights.qkv.gained[self._step], _right(weights.qkv.weight, tile, columns),
            weights.qkv.bias[self._step], o._turns, self._table["position"], o._queries, self._pool, self._kept_pool,
            self._table["own"], self._rows, self._layout.elements, offset, N=width, WIDTH=o._config.head_width,
            RATIO=self._ratio, LARGEST=o._kept.largest, PLACES=MAX_FLOW_FRAMES, **self._normed(), FRAMES=CHUNK_FRAMES,
            ROWS=ROWS, DESCRIBED=tile.described, BM=tile.rows, BN=columns, BK=tile.inner, warps=tile.warps,
            stages=tile.stages,
        )  # fmt: skip
        tile = self._tile("dit attention")
        self._launch(
            paged_attention, (self._units * ROWS, heads, self._splits), o._queries, self._pool, self._kept_pool,
            self._table["pages"], self._table["counts"], self._table["frames"],
            o._parts if self._splits > 1 else o._attended, o._norms, self._rows, self._layout.elements, offset,
            TABLE=TABLE, FRAMES=CHUNK_FRAMES, FP=power(CHUNK_FRAMES), RATIO=self._ratio, ROWS=ROWS, HEADS=heads,
            WIDTH=o._config.head_width, SPLITS=self._splits, LEAST=2, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        if self._splits > 1:
            self._launch(
                joined_parts, (self._rows,), o._parts, o._norms, o._attended, self._rows, HEADS=heads,
                WIDTH=o._config.head_width, INNER=power(width), SPLITS=self._splits,
            )  # fmt: skip
        self._onto(o._attended, weights.out, weights.attention_gate, weights.widen, "dit out")

    def feed_forward(self, weights: DitBlock, following: TimedProduct) -> None:
        """Add a block's feed-forward to the stream. following: what reads it then."""
        o, tile, wide = self._o, self._tile("dit widen"), self._o._config.feed_forward
        self._launch(
            modulated_gelu, (ceil(wide, tile.columns), ceil(self._rows, tile.rows)), _left(o._copy, tile), o._moments,
            weights.widen.gained[self._step], _right(weights.widen.weight, tile), weights.widen.bias[self._step],
            o._wide, self._rows, N=wide, K=self._width, **self._normed(), DESCRIBED=tile.described, BM=tile.rows,
            BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        self._onto(o._wide, weights.narrow, weights.feed_gate, following, "dit narrow")

    def _onto(self, a: Tensor, weights: Product, gates: Tensor, following: TimedProduct, kind: str) -> None:
        o, tile = self._o, self._tile(kind)
        self._launch(
            gated_onto_stream, (ceil(self._width, tile.columns), ceil(self._rows, tile.rows)), _left(a, tile),
            _right(weights.weight, tile), weights.bias, gates[self._step], o._stream, o._copy, o._moments,
            following.gain[self._step], self._rows, N=self._width, K=a.shape[1], DESCRIBED=tile.described,
            BM=tile.rows, BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        self._part = tile.columns

    def _normed(self) -> dict[str, int | float]:
        return {"PART": self._part, "PP": power(ceil(self._width, self._part)), "EPS": _EPSILON}

    def euler_step(self) -> None:
        """Move the mel by the velocity that the stream stands for."""
        o, tile, last = self._o, self._tile("dit velocity"), self._o._last
        self._launch(
            modulated_euler_step, (self._units, ceil(CHUNK_FRAMES, tile.rows), ceil(MEL_BINS, tile.columns)), o._copy,
            o._moments, last.gained[self._step], last.weight, last.bias[self._step], o.x, o._joined,
            o._dt[self._step], o._config.guidance, N=self._width, **self._normed(), FRAMES=CHUNK_FRAMES, BINS=MEL_BINS,
            BM=tile.rows, BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip


def _undescribed(tile: Tile) -> Tile:
    """For a GPU without descriptors; its multiprocessors have 99 KB for a program's operands."""
    return Tile(tile.rows, min(tile.columns, 128), min(tile.inner, 64), tile.warps, 3)


def _left(a: Tensor, tile: Tile) -> Any:
    """The left operand of a product, a descriptor where the tile wants one."""
    return TensorDescriptor.from_tensor(a, [tile.rows, tile.inner]) if tile.described else a


def _right(weight: Tensor, tile: Tile, columns: int = 0) -> Any:
    """The same for weights. columns: those of the tile unless given."""
    return TensorDescriptor.from_tensor(weight, [columns or tile.columns, tile.inner]) if tile.described else weight
