"""The launches of the estimator's transformers: one launch per product, or fewer in small batches,
whose time is dominated by launches.
"""

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.weights import FlowConfig
from services.token2wav.gpu.device.launcher import Launcher, Tile, ceil, power
from services.token2wav.gpu.kernels.attention import attend_by_head, joined_parts, paged_attention
from services.token2wav.gpu.kernels.linear import GELU, feed_forward, normed_linear, onto_residual, queries_keys_values
from services.token2wav.gpu.paged_flow.page_layout import Layout
from services.token2wav.gpu.paged_flow.unit_table import TABLE, UnitTable
from services.token2wav.gpu.paged_flow.weights import Product, Transformer

_EPSILON = 1e-5


def barrier_programs(tile: Tile, channels: int) -> int:
    """Programs that share the rows of a feed-forward and wait for each other, see
    `kernels.feed_forward`.
    """
    return 4 * channels // tile.inner


class TransformerBuffers:
    """Buffers of a pass over at most `most` units.

    splits: parts of the keys of one query that are processed in parallel, in passes of at most
    split_units units that split keys. Without splitting, few programs would take long for many
    pages; joining the parts costs an extra launch.

    barrier_units: maximum units of a pass whose feed-forward is one launch of programs that wait
    for each other; see `kernels.feed_forward`.

    by_head: maximum units of such a pass whose attention is fused with the product that follows it,
    if keys are not split; see `kernels.head_attention`.
    """

    def __init__(
        self, config: FlowConfig, most: int, dtype: torch.dtype, device: torch.device, launch: Launcher, splits: int,
        split_units: int,
        barrier_units: int, by_head: int,
    ) -> None:  # fmt: skip
        each, inner, heads = ROWS * CHUNK_FRAMES, config.estimator_heads * config.head_width, config.estimator_heads
        rows, widest, barrier_rows = most * each, splits * min(most, split_units) * each, max(barrier_units, 1) * each
        programs = max(barrier_programs(tile, config.channels) for _, tile in launch.rules("feed forward"))

        def zeros(*shape: int, kind: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self.config, self.barrier_units, self.by_head = config, barrier_units, min(by_head, barrier_units)
        self.queries, self.attended = zeros(rows, inner), zeros(rows, inner)
        self.splits, self.norms = zeros(widest, inner), zeros(widest, heads, kind=torch.float32)
        self.wide = zeros(rows, 4 * config.channels)
        self.heads = zeros(heads, max(self.by_head, 1) * each, config.channels)
        self.partial = zeros(programs, barrier_rows, config.channels, kind=torch.float32)
        self.row_tiles = ceil(barrier_rows, 16)
        """Maximum row tiles of a feed-forward with a grid barrier."""
        layers = (config.middle + 2) * config.transformers
        self.counters = zeros(EULER_STEPS * layers * self.row_tiles, kind=torch.int32)

    def reset_barriers(self, units: int) -> None:
        """Reset the barrier counters before a pass."""
        if units <= self.barrier_units:
            self.counters.zero_()


class Transformers:
    """The transformers of one Euler step over the first `units` units of the table; splits: parts
    of the keys.
    """

    def __init__(
        self, buffers: TransformerBuffers, launch: Launcher, step: int, table: UnitTable, pool: Tensor, layout: Layout,
        units: int, splits: int
    ) -> None:  # fmt: skip
        self._o, self._launch, self._step, self._table, self._pool, self._layout = (
            buffers,
            launch,
            step,
            table,
            pool,
            layout,
        )
        self._units, self._rows, self._splits = units, units * ROWS * CHUNK_FRAMES, splits
        self._uses_barrier = units <= buffers.barrier_units
        self._by_head = splits == 1 and units <= buffers.by_head

    def __call__(self, weights: Transformer, layer: int, x: Tensor, tail: int | None) -> None:
        """Apply layer number `layer` of the estimator to x float32 [rows, channels]. tail: where
        the last frames of the result are stored in each unit's page; None: nowhere.
        """
        self._queries_keys_values(weights, layer, x)
        if self._by_head:
            self._attend_by_head(weights, layer)
        else:
            self._attend(layer)
            self._onto(self._o.attended, weights.out, x, None, "out")
        if self._uses_barrier:
            self._feed_forward(weights, layer, x, tail)
        else:
            self._widen(weights, x)
            self._onto(self._o.wide, weights.narrow, x, tail, "narrow")

    def _queries_keys_values(self, weights: Transformer, layer: int, x: Tensor) -> None:
        o, tile, n = self._o, self._launch.tile("qkv", self._rows), self._o.config.channels
        inner = o.config.estimator_heads * o.config.head_width
        columns = min(tile.columns, inner)
        self._launch(
            queries_keys_values, (3 * inner // (columns * tile.loop), ceil(self._rows, tile.rows)), x,
            weights.qkv.weight,
            weights.qkv.bias, o.queries, self._pool, self._table["own"], self._rows, self._layout.elements,
            self._layout.attention(self._step, layer), INNER=inner, K=n, KP=power(n), EPS=_EPSILON,
            FRAMES=CHUNK_FRAMES, ROWS=ROWS,
            BM=tile.rows, BN=columns, LOOP=tile.loop, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip

    def _attend(self, layer: int) -> None:
        o, tile = self._o, self._launch.tile("attention", self._rows)
        heads, width = o.config.estimator_heads, o.config.head_width
        self._launch(
            paged_attention, (self._units * ROWS, heads, self._splits), o.queries, self._pool, self._table["pages"],
            self._table["counts"],
            self._table["frames"], o.splits if self._splits > 1 else o.attended, o.norms, self._rows,
            self._layout.elements,
            self._layout.attention(self._step, layer), TABLE=TABLE, FRAMES=CHUNK_FRAMES, FP=power(CHUNK_FRAMES),
            ROWS=ROWS, HEADS=heads,
            WIDTH=width, SPLITS=self._splits, LEAST=2, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        if self._splits > 1:
            self._launch(
                joined_parts, (self._rows,), o.splits, o.norms, o.attended, self._rows, HEADS=heads, WIDTH=width,
                SPLITS=self._splits
            )  # fmt: skip

    def _attend_by_head(self, weights: Transformer, layer: int) -> None:
        o, tile, config = self._o, self._launch.tile("head", self._rows), self._o.config
        self._launch(
            attend_by_head, (self._units * ROWS * power(CHUNK_FRAMES) // tile.rows, config.estimator_heads), o.queries,
            self._pool,
            self._table["pages"], self._table["counts"], self._table["frames"], weights.out.weight, o.heads, self._rows,
            self._layout.elements, self._layout.attention(self._step, layer), K=config.channels, TABLE=TABLE,
            FRAMES=CHUNK_FRAMES,
            FP=power(CHUNK_FRAMES), ROWS=ROWS, HEADS=config.estimator_heads, WIDTH=config.head_width, BM=tile.rows,
            KEYS=tile.inner,
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip

    def _feed_forward(self, weights: Transformer, layer: int, x: Tensor, tail: int | None) -> None:
        o, tile, n = self._o, self._launch.tile("feed forward", self._rows), self._o.config.channels
        first_counter = (self._step * self._layout.estimator_layers + layer) * o.row_tiles
        heads = o.config.estimator_heads if self._by_head else 0
        self._launch(
            feed_forward, (barrier_programs(tile, n), ceil(self._rows, tile.rows)), x, o.heads, weights.out.bias,
            weights.widen.weight,
            weights.widen.bias, weights.narrow.weight, weights.narrow.bias, o.partial, o.counters, self._pool,
            self._table["own"],
            self._rows, self._layout.elements, tail or 0, first_counter, N=n, H=4 * n, EPS=_EPSILON,
            FRAMES=CHUNK_FRAMES, ROWS=ROWS,
            TAIL=tail is not None, BM=tile.rows, HIDDEN=tile.inner, HEADS=heads, warps=tile.warps,
        )  # fmt: skip

    def _widen(self, weights: Transformer, x: Tensor) -> None:
        tile, n = self._launch.tile("widen", self._rows), self._o.config.channels
        self._launch(
            normed_linear, (ceil(4 * n, tile.columns * tile.loop), ceil(self._rows, tile.rows)), x,
            weights.widen.weight,
            weights.widen.bias, self._o.wide, self._rows, N=4 * n, K=n, KP=power(n), EPS=_EPSILON, ACTIVATION=GELU,
            BM=tile.rows, BN=tile.columns, LOOP=tile.loop, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip

    def _onto(self, a: Tensor, weights: Product, x: Tensor, tail: int | None, kind: str) -> None:
        tile, n = self._launch.tile(kind, self._rows), self._o.config.channels
        self._launch(
            onto_residual, (ceil(n, tile.columns), ceil(self._rows, tile.rows)), a, weights.weight, weights.bias, x,
            self._pool,
            self._table["own"], self._rows, self._layout.elements, tail or 0, N=n, K=a.shape[1], FRAMES=CHUNK_FRAMES,
            ROWS=ROWS,
            TAIL=tail is not None, BM=tile.rows, BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
