"""The estimator of the flow's velocity as a sequence of kernels: the arithmetic of
`flow.unet.estimator` over paged state.

A transformer is one launch per product, or fewer in small batches, whose time is dominated by
launches.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS, MEL_BINS
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.layers import Tensors
from services.token2wav.flow.solver import ROWS, euler_schedule
from services.token2wav.flow.unet.estimator import Estimator
from services.token2wav.flow.unet.weights import UnetConfig
from services.token2wav.gpu.clusters.step import clustered_step
from services.token2wav.gpu.device.launcher import Launcher, ceil, power
from services.token2wav.gpu.kernels.attention import attend_by_head, joined_parts, paged_attention
from services.token2wav.gpu.kernels.convolution import causal_convolution, norm_mish
from services.token2wav.gpu.kernels.euler import euler_step, prepare
from services.token2wav.gpu.kernels.linear import GELU, feed_forward, normed_linear, onto_residual, queries_keys_values
from services.token2wav.gpu.paged_flow.kept_numbers import AS_OPERANDS, KeptNumbers
from services.token2wav.gpu.paged_flow.page_layout import Layout
from services.token2wav.gpu.paged_flow.transformer_buffers import TransformerBuffers, barrier_programs
from services.token2wav.gpu.paged_flow.unit_table import TABLE, UnitTable
from services.token2wav.gpu.paged_flow.weights import Level, Norm, Product, Transformer, convolution, product

_EPSILON = 1e-5


class PagedEstimator:
    """Weights, and buffers for a pass over at most `most` units; the state of streams is in the
    pool's pages.

    splits, split_units, barrier_units, by_head: see `TransformerBuffers`; keys are split in `long`
    passes. kept: the type of keys and values in the pages. clusters: whether to take
    `clusters.step` where it can run.
    """

    def __init__(
        self, config: UnetConfig, tensors: Mapping[str, Tensor], most: int, dtype: torch.dtype, launch: Launcher,
        splits: int = 4, split_units: int = 4, barrier_units: int = 0, by_head: int = 0,
        kept: KeptNumbers = AS_OPERANDS, clusters: bool = False,
    ) -> None:  # fmt: skip
        weights = Tensors(tensors).within(ESTIMATOR[:-1])
        device = tensors[f"{ESTIMATOR}final_proj.bias"].device
        plain = Estimator(weights, heads=config.estimator_heads, transformers=config.transformers, middle=config.middle)
        schedule = euler_schedule()
        self._dt = [dt for _, dt in schedule]
        times = torch.cat([plain.time_embedding(torch.tensor([t], device=device)) for t, _ in schedule])
        names = ["down_blocks.0", *(f"mid_blocks.{at}" for at in range(config.middle)), "up_blocks.0"]
        self._levels = [Level(weights.within(name), config, times, dtype) for name in names]
        self._down_end, self._up_end = (
            convolution(weights.within(f"{name}_blocks.0.2"), dtype) for name in ("down", "up")
        )
        final = weights.within("final_block")
        self._final, self._final_norm = convolution(final.within("block.0"), dtype), Norm.of(final.within("block.2"))
        self._project = product(weights["final_proj.weight"].squeeze(2), weights["final_proj.bias"], dtype)
        self._config, self._launch, self._splits, self.split_units = config, launch, splits, split_units
        self._kept = kept
        rows, channels = most * ROWS * CHUNK_FRAMES, config.channels

        def zeros(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self.x = zeros(most, CHUNK_FRAMES, MEL_BINS)
        """The mel between Euler steps, float32 [units, 50, 80]; after the last step, the result."""
        self._inputs = zeros(rows, 4 * MEL_BINS, kind=dtype)
        self._a, self._b, self._y, self._shortcut = (zeros(rows, channels) for _ in range(4))
        self._h = zeros(rows, channels, kind=dtype)
        self._no_rows = zeros(1)
        self._clustered = clustered_step(
            config, self._levels, (self._down_end, self._up_end, self._final), dtype, launch.chained, kept
        ) if clusters else None  # fmt: skip
        self.clustered_units = 0 if self._clustered is None else self._clustered.most
        self.transformer_buffers = TransformerBuffers(
            config, most, dtype, device, launch, splits, split_units, barrier_units, by_head
        )

    def prepare(self, mu: Tensor, noise: Tensor, table: UnitTable, pool: Tensor, layout: Layout, units: int) -> None:
        """Write the first step's input and reset the barrier counters: mu float32 [units, 50, 80],
        noise float32 [15000, 80].
        """
        if units <= self.transformer_buffers.barrier_units:
            self.transformer_buffers.counters.zero_()
        self._launch(
            prepare, (units, CHUNK_FRAMES), mu, table.speaker, table.condition, noise, table["position"], self.x,
            self._inputs, pool, table["own"], layout.elements, layout.tail(0, "in"), layout.tail_step,
            FRAMES=CHUNK_FRAMES, BINS=MEL_BINS, BP=power(MEL_BINS), STEPS=EULER_STEPS if layout.stored else 1, warps=1,
        )  # fmt: skip

    def step(
        self, step: int, table: UnitTable, pool: Tensor, layout: Layout, units: int, *, long: bool = False,
        apart: bool = False,
    ) -> None:  # fmt: skip
        """Euler step 0..9 of the first `units` units. long: for streams with many pages, see
        `splits`. apart: for units with few pages, none of which is a block of another's stream.
        """
        if apart and self._clustered is not None:
            self._clustered(step, self._inputs, self._y, table, pool, layout, units)
        else:
            self._by_products(_Pass(self, step, table, pool, layout, units, self._splits if long else 1))
        self._euler_step(step, table, pool, layout, units)

    def _by_products(self, call: "_Pass") -> None:
        config = self._config
        call.level(0, (self._inputs, "in"), None, self._a)
        call.convolve(self._a, "skip", self._down_end, self._b, "x1")
        skip, x, free = self._a, self._b, self._b
        for level in range(1, config.middle + 1):
            # In place, because the resnet has read its input before the first transformer writes.
            call.level(level, (x, f"x{level}"), None, free)
        call.level(config.middle + 1, (x, f"x{config.middle + 1}"), (skip, "skip"), free)
        call.convolve(x, "end", self._up_end, self._shortcut, "final")
        call.convolve(self._shortcut, "final", self._final, self._y, None)

    def _euler_step(self, step: int, table: UnitTable, pool: Tensor, layout: Layout, units: int) -> None:
        config = self._config
        last = step == EULER_STEPS - 1
        self._launch(
            euler_step, (units, ceil(CHUNK_FRAMES, 16)), self._y, self._final_norm.weight, self._final_norm.bias,
            self._project.weight, self._project.bias, self.x, self._inputs, pool, table["own"], layout.elements,
            0 if last else layout.tail(step + 1, "in"), self._dt[step], config.guidance, C=config.channels,
            CP=power(config.channels), FRAMES=CHUNK_FRAMES, BINS=MEL_BINS, BP=power(MEL_BINS), TAIL=not last, BM=16,
            warps=8,
        )  # fmt: skip


class _Pass:
    """The launches of one Euler step over the first `units` units of the table. splits: parts of
    the keys.
    """

    def __init__(
        self, owner: PagedEstimator, step: int, table: UnitTable, pool: Tensor, layout: Layout, units: int, splits: int
    ) -> None:
        self._o, self._step, self._table, self._pool, self._layout = owner, step, table, pool, layout
        self._units, self._rows, self._splits = units, units * ROWS * CHUNK_FRAMES, splits
        self._launch, self._buffers, self._channels = owner._launch, owner.transformer_buffers, owner._config.channels
        self._uses_barrier = units <= self._buffers.barrier_units
        self._by_head = splits == 1 and units <= self._buffers.by_head
        self._kept_pool, self._ratio = owner._kept.view(pool), owner._kept.ratio(pool.dtype)
        self._largest = owner._kept.largest

    def convolve(
        self, x: Tensor, site: str, weights: Product, out: Tensor, out_site: str | None, *,
        second: tuple[Tensor, str] | None = None, shortcut: Product | None = None,
    ) -> None:  # fmt: skip
        """Raw causal convolution of x, or of x and `second` concatenated. out_site: the convolution
        that reads the tail of the result.
        """
        o, layout, tile, n = self._o, self._layout, self._launch.tile("convolution", self._rows), self._channels
        other, other_site = second if second is not None else (x, site)
        aside = shortcut if shortcut is not None else weights
        tails = [layout.tail(self._step, each) if each else 0 for each in (site, other_site, out_site)]
        self._launch(
            causal_convolution,
            (ceil(n, tile.columns) * (2 if shortcut is not None else 1), ceil(self._rows, tile.rows)), x, other,
            weights.weight, weights.bias, aside.weight, aside.bias, o._no_rows, out, o._shortcut, self._pool,
            self._table["own"], self._table["before"], self._table["position"], self._rows, layout.elements, *tails,
            C=x.shape[1], C2=other.shape[1] if second is not None else 0, N=n, FRAMES=CHUNK_FRAMES, ROWS=ROWS, TAPS=3,
            STEP=0, SHORTCUT=shortcut is not None, ADD=False, TAIL=out_site is not None, BM=tile.rows, BN=tile.columns,
            BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip

    def level(self, level: int, source: tuple[Tensor, str], second: tuple[Tensor, str] | None, x: Tensor) -> None:
        """Resnet and transformers from `source` to x. The tail is stored for the convolution that
        reads x next.
        """
        o, weights = self._o, self._o._levels[level]
        self.convolve(*source, weights.first, o._y, None, second=second, shortcut=weights.shortcut)
        self._norm_mish(o._y, weights.norms[0], weights.times[self._step], o._h, f"h{level}")
        self.convolve(o._h, f"h{level}", weights.second, o._y, None)
        self._norm_mish(o._y, weights.norms[1], o._shortcut, x, None)
        for at, transformer in enumerate(weights.transformers):
            last = at == len(weights.transformers) - 1
            tail = self._layout.tail(self._step, self._reader(level)) if last else None
            self._transform(transformer, level * len(weights.transformers) + at, x, tail)

    def _reader(self, level: int) -> str:
        middle = self._o._config.middle
        return "skip" if level == 0 else "end" if level == middle + 1 else f"x{level + 1}"

    def _norm_mish(self, y: Tensor, norm: Norm, add: Tensor, out: Tensor, site: str | None) -> None:
        tile, n = self._launch.tile("rows", self._rows), self._channels
        self._launch(
            norm_mish, (ceil(self._rows, tile.rows),), y, norm.weight, norm.bias, add, out, self._pool,
            self._table["own"], self._rows, self._layout.elements, self._layout.tail(self._step, site) if site else 0,
            N=n, NP=power(n), FRAMES=CHUNK_FRAMES, ROWS=ROWS, ADD_ROWS=add.dim() == 2, TAIL=site is not None,
            BM=tile.rows, warps=tile.warps,
        )  # fmt: skip

    def _transform(self, weights: Transformer, layer: int, x: Tensor, tail: int | None) -> None:
        """Apply layer number `layer` of the estimator to x float32 [rows, channels]. tail: where
        the last frames of the result are stored in each unit's page; None: nowhere.
        """
        self._queries_keys_values(weights, layer, x)
        if self._by_head:
            self._attend_by_head(weights, layer)
        else:
            self._attend(layer)
            self._onto(self._buffers.attended, weights.out, x, None, "out")
        if self._uses_barrier:
            self._feed_forward(weights, layer, x, tail)
        else:
            self._widen(weights, x)
            self._onto(self._buffers.wide, weights.narrow, x, tail, "narrow")

    def _queries_keys_values(self, weights: Transformer, layer: int, x: Tensor) -> None:
        o, tile, n = self._buffers, self._launch.tile("qkv", self._rows), self._channels
        inner = o.config.estimator_heads * o.config.head_width
        columns = min(tile.columns, inner)
        if self._ratio > 1:
            columns = max(columns, o.config.head_width)  # a scale is of a whole head
        self._launch(
            queries_keys_values, (3 * inner // (columns * tile.loop), ceil(self._rows, tile.rows)), x,
            weights.qkv.weight, weights.qkv.bias, o.queries, self._pool, self._kept_pool, self._table["own"],
            self._rows, self._layout.elements, self._layout.attention(self._step, layer), INNER=inner, K=n, KP=power(n),
            EPS=_EPSILON, FRAMES=CHUNK_FRAMES, ROWS=ROWS, WIDTH=o.config.head_width, RATIO=self._ratio,
            LARGEST=self._largest, BM=tile.rows, BN=columns, LOOP=tile.loop, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip

    def _attend(self, layer: int) -> None:
        o, tile, here = self._buffers, self._launch.tile("attention", self._rows), self._layout.attention
        heads, width = o.config.estimator_heads, o.config.head_width
        self._launch(
            paged_attention, (self._units * ROWS, heads, self._splits), o.queries, self._pool, self._kept_pool,
            self._table["pages"], self._table["counts"], self._table["frames"], self._table["skipped"],
            o.splits if self._splits > 1 else o.attended, o.norms, self._rows, self._layout.elements,
            here(self._step, layer), TABLE=TABLE, FRAMES=CHUNK_FRAMES, FP=power(CHUNK_FRAMES), RATIO=self._ratio,
            ROWS=ROWS, HEADS=heads, WIDTH=width, SPLITS=self._splits, LEAST=2, SKIP=0, warps=tile.warps,
            stages=tile.stages,
        )  # fmt: skip
        if self._splits > 1:
            self._launch(
                joined_parts, (self._rows,), o.splits, o.norms, o.attended, self._rows, HEADS=heads, WIDTH=width,
                INNER=power(heads * width), SPLITS=self._splits,
            )  # fmt: skip

    def _attend_by_head(self, weights: Transformer, layer: int) -> None:
        kind = "head" if self._ratio == 1 else "kept head"
        o, tile, config = self._buffers, self._launch.tile(kind, self._rows), self._buffers.config
        self._launch(
            attend_by_head, (self._units * ROWS * power(CHUNK_FRAMES) // tile.rows, config.estimator_heads), o.queries,
            self._pool, self._kept_pool, self._table["pages"], self._table["counts"], self._table["frames"],
            weights.out.weight, o.heads, self._rows, self._layout.elements, self._layout.attention(self._step, layer),
            K=config.channels, TABLE=TABLE, FRAMES=CHUNK_FRAMES, RATIO=self._ratio, FP=power(CHUNK_FRAMES), ROWS=ROWS,
            HEADS=config.estimator_heads, WIDTH=config.head_width, BM=tile.rows, KEYS=tile.inner, warps=tile.warps,
            stages=tile.stages,
        )  # fmt: skip

    def _feed_forward(self, weights: Transformer, layer: int, x: Tensor, tail: int | None) -> None:
        o, tile, n = self._buffers, self._launch.tile("feed forward", self._rows), self._channels
        first_counter = (self._step * self._layout.estimator_layers + layer) * o.row_tiles
        heads = o.config.estimator_heads if self._by_head else 0
        self._launch(
            feed_forward, (barrier_programs(tile, n), ceil(self._rows, tile.rows)), x, o.heads, weights.out.bias,
            weights.widen.weight, weights.widen.bias, weights.narrow.weight, weights.narrow.bias, o.partial, o.counters,
            self._pool, self._table["own"], self._rows, self._layout.elements, tail or 0, first_counter, N=n, H=4 * n,
            EPS=_EPSILON, FRAMES=CHUNK_FRAMES, ROWS=ROWS, TAIL=tail is not None, BM=tile.rows, HIDDEN=tile.inner,
            HEADS=heads, warps=tile.warps,
        )  # fmt: skip

    def _widen(self, weights: Transformer, x: Tensor) -> None:
        tile, n = self._launch.tile("widen", self._rows), self._channels
        self._launch(
            normed_linear, (ceil(4 * n, tile.columns * tile.loop), ceil(self._rows, tile.rows)), x,
            weights.widen.weight, weights.widen.bias, self._buffers.wide, self._rows, N=4 * n, K=n, KP=power(n),
            EPS=_EPSILON, ACTIVATION=GELU, BM=tile.rows, BN=tile.columns, LOOP=tile.loop, warps=tile.warps,
            stages=tile.stages,
        )  # fmt: skip

    def _onto(self, a: Tensor, weights: Product, x: Tensor, tail: int | None, kind: str) -> None:
        tile, n = self._launch.tile(kind, self._rows), self._channels
        self._launch(
            onto_residual, (ceil(n, tile.columns), ceil(self._rows, tile.rows)), a, weights.weight, weights.bias, x,
            self._pool, self._table["own"], self._rows, self._layout.elements, tail or 0, N=n, K=a.shape[1],
            FRAMES=CHUNK_FRAMES, ROWS=ROWS, TAIL=tail is not None, BM=tile.rows, BN=tile.columns, BK=tile.inner,
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
