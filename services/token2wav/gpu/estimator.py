"""The estimator of the flow's velocity as a chain of kernels: the arithmetic of `flow.estimator` over paged state."""

from collections.abc import Mapping

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS, MEL_BINS
from services.token2wav.flow.estimator import Estimator
from services.token2wav.flow.layers import Tensors
from services.token2wav.flow.solver import ROWS, euler_schedule
from services.token2wav.flow.weights import ESTIMATOR, FlowConfig
from services.token2wav.gpu.kernels.attention import joined_parts, paged_attention
from services.token2wav.gpu.kernels.convolution import causal_convolution, norm_mish
from services.token2wav.gpu.kernels.euler import euler_step, prepare
from services.token2wav.gpu.kernels.feed_forward import feed_forward
from services.token2wav.gpu.kernels.head import attend_by_head, heads_onto_residual
from services.token2wav.gpu.kernels.linear import GELU, normed_linear, onto_residual, queries_keys_values
from services.token2wav.gpu.launch import Launcher, ceil, power
from services.token2wav.gpu.layout import Layout
from services.token2wav.gpu.units import TABLE, UnitTable
from services.token2wav.gpu.weights import Level, Norm, Product, Transformer, convolution, product

_EPSILON = 1e-5


class PagedEstimator:
    """Weights and the buffers of a pass over at most `most` units; the state of streams is in the pool's pages.

    splits: parts of the keys of one query that are attended to side by side in `long` passes of at most split_units units: few programs
    would take long for many pages, and joining the parts costs another launch. by_head: units of a pass at most whose attention is one
    launch, where they are `apart`; see `kernels.head`.
    """

    def __init__(
        self, config: FlowConfig, tensors: Mapping[str, Tensor], most: int, dtype: torch.dtype, launch: Launcher,
        splits: int = 4, split_units: int = 4, meeting_units: int = 0, by_head: int = 0,
    ) -> None:  # fmt: skip
        weights = Tensors(tensors).within(ESTIMATOR[:-1])
        device = tensors[f"{ESTIMATOR}final_proj.bias"].device
        plain = Estimator(weights, heads=config.estimator_heads, transformers=config.transformers, middle=config.middle)
        schedule = euler_schedule()
        self._dt = [dt for _, dt in schedule]
        times = torch.cat([plain.time_embedding(torch.tensor([t], device=device)) for t, _ in schedule])
        names = ["down_blocks.0", *(f"mid_blocks.{at}" for at in range(config.middle)), "up_blocks.0"]
        self._levels = [Level(weights.within(name), config, times, dtype) for name in names]
        self._down_end, self._up_end = (convolution(weights.within(f"{name}_blocks.0.2"), dtype) for name in ("down", "up"))
        self._final, self._final_norm = (
            convolution(weights.within("final_block.block.0"), dtype),
            Norm.of(weights.within("final_block.block.2")),
        )
        self._project = product(weights["final_proj.weight"].squeeze(2), weights["final_proj.bias"], dtype)
        self._config, self._launch, self._splits, self.split_units = config, launch, splits, split_units
        rows, channels, inner = most * ROWS * CHUNK_FRAMES, config.channels, config.estimator_heads * config.head_width
        widest = splits * min(most, split_units)

        def room(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self.x = room(most, CHUNK_FRAMES, MEL_BINS)
        """The mel on its way, float32 [units, 50, 80]; after the last step, the mel."""
        self._inputs = room(rows, 4 * MEL_BINS, kind=dtype)
        self._a, self._b, self._y, self._beside = (room(rows, channels) for _ in range(4))
        self._h = room(rows, channels, kind=dtype)
        self._queries, self._attended = room(rows, inner, kind=dtype), room(rows, inner, kind=dtype)
        self._parts = room(widest * ROWS * CHUNK_FRAMES, inner, kind=dtype)
        self._norms = room(widest * ROWS * CHUNK_FRAMES, config.estimator_heads)
        self._wide = room(rows, 4 * channels, kind=dtype)
        self._no_rows = room(1)
        self.meeting_units = meeting_units
        """Batches of so many units or fewer have programs that wait for each other, see `kernels.feed_forward`."""
        self.row_tiles = ceil(max(meeting_units, 1) * ROWS * CHUNK_FRAMES, 16)
        layers = (config.middle + 2) * config.transformers
        self.counters = room(EULER_STEPS * layers * self.row_tiles, kind=torch.int32)
        self._partial = room(8 * max(meeting_units, 1) * ROWS * CHUNK_FRAMES, channels)
        self._heads = room(config.estimator_heads * max(by_head, 1) * ROWS * CHUNK_FRAMES, channels)

    def prepare(self, mu: Tensor, noise: Tensor, table: UnitTable, pool: Tensor, layout: Layout, units: int) -> None:
        """Lay out the first step's input and forget who met: mu float32 [units, 50, 80], noise float32 [15000, 80]."""
        if units <= self.meeting_units:
            self.counters.zero_()
        self._launch(
            prepare, (units, CHUNK_FRAMES), mu, table.speaker, table.condition, noise, table["position"], self.x, self._inputs,
            pool, table["own"], layout.elements, layout.tail(0, "in"), layout.tail_step, FRAMES=CHUNK_FRAMES, BINS=MEL_BINS,
            BP=power(MEL_BINS), STEPS=EULER_STEPS if layout.kept else 1, warps=1,
        )  # fmt: skip

    def step(
        self, step: int, table: UnitTable, pool: Tensor, layout: Layout, units: int, *, long: bool = False, apart: bool = False
    ) -> None:  # fmt: skip
        """Euler step 0..9 of the first `units` units. long: for many pages, see `splits`. apart: none of the units attends to another one's
        page, and there are at most `by_head` of them."""
        call = _Pass(self, step, table, pool, layout, units, self._splits if long else 1, by_head=apart)
        config = self._config
        call.level(0, (self._inputs, "in"), None, self._a)
        call.convolve(self._a, "skip", self._down_end, self._b, "x1")
        skip, x, free = self._a, self._b, self._b
        for level in range(1, config.middle + 1):
            # In place: the resnet has read its input when the first transformer writes.
            call.level(level, (x, f"x{level}"), None, free)
        call.level(config.middle + 1, (x, f"x{config.middle + 1}"), (skip, "skip"), free)
        call.convolve(x, "end", self._up_end, self._beside, "final")
        call.convolve(self._beside, "final", self._final, self._y, None)
        last = step == EULER_STEPS - 1
        self._launch(
            euler_step, (units, ceil(CHUNK_FRAMES, 16)), self._y, self._final_norm.weight, self._final_norm.bias, self._project.weight,
            self._project.bias, self.x, self._inputs, pool, table["own"], layout.elements,
            0 if last else layout.tail(step + 1, "in"), self._dt[step], config.guidance, C=config.channels, CP=power(config.channels),
            FRAMES=CHUNK_FRAMES, BINS=MEL_BINS, BP=power(MEL_BINS), TAIL=not last, BM=16, warps=8,
        )  # fmt: skip


class _Pass:
    """One Euler step's launches."""

    def __init__(
        self, owner: PagedEstimator, step: int, table: UnitTable, pool: Tensor, layout: Layout, units: int, splits: int, *, by_head: bool
    ) -> None:  # fmt: skip
        self._o, self._step, self._table, self._pool, self._layout, self._units = owner, step, table, pool, layout, units
        self._rows = units * ROWS * CHUNK_FRAMES
        self._launch = owner._launch
        self._channels = owner._config.channels
        self._meets = units <= owner.meeting_units
        self._splits, self._by_head = splits, by_head

    def convolve(
        self, x: Tensor, site: str, weights: Product, out: Tensor, out_site: str | None, *, second: tuple[Tensor, str] | None = None,
        beside: Product | None = None,
    ) -> None:  # fmt: skip
        """Raw causal convolution of x, and of `second` beside it; out_site: where the result's tail belongs."""
        o, layout, tile, n = self._o, self._layout, self._launch.tile("convolution", self._rows), self._channels
        other, other_site = second if second is not None else (x, site)
        aside = beside if beside is not None else weights
        self._launch(
            causal_convolution, (ceil(n, tile.columns) * (2 if beside is not None else 1), ceil(self._rows, tile.rows)),
            x, other, weights.weight, weights.bias, aside.weight, aside.bias, o._no_rows, out, o._beside, self._pool, self._table["own"],
            self._table["before"], self._rows, layout.elements, layout.tail(self._step, site), layout.tail(self._step, other_site),
            layout.tail(self._step, out_site) if out_site else 0, C=x.shape[1], C2=other.shape[1] if second is not None else 0, N=n,
            FRAMES=CHUNK_FRAMES, ROWS=ROWS, TAPS=3, BESIDE=beside is not None, ADD=False, TAIL=out_site is not None,
            BM=tile.rows, BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip

    def level(self, level: int, source: tuple[Tensor, str], second: tuple[Tensor, str] | None, x: Tensor) -> None:
        """Resnet and transformers from `source` to x; the tail goes to the site of whoever reads x next."""
        o, weights = self._o, self._o._levels[level]
        self.convolve(*source, weights.first, o._y, None, second=second, beside=weights.beside)
        self._norm_mish(o._y, weights.norms[0], weights.times[self._step], o._h, f"h{level}")
        self.convolve(o._h, f"h{level}", weights.second, o._y, None)
        self._norm_mish(o._y, weights.norms[1], o._beside, x, None)
        for at, transformer in enumerate(weights.transformers):
            last = at == len(weights.transformers) - 1
            self.transform(transformer, level * len(weights.transformers) + at, x, self._reader(level) if last else None)

    def _reader(self, level: int) -> str:
        middle = self._o._config.middle
        return "skip" if level == 0 else "end" if level == middle + 1 else f"x{level + 1}"

    def _norm_mish(self, y: Tensor, norm: Norm, add: Tensor, out: Tensor, site: str | None) -> None:
        tile, n = self._launch.tile("rows", self._rows), self._channels
        self._launch(
            norm_mish, (ceil(self._rows, tile.rows),), y, norm.weight, norm.bias, add, out, self._pool, self._table["own"], self._rows,
            self._layout.elements, self._layout.tail(self._step, site) if site else 0, N=n, NP=power(n), FRAMES=CHUNK_FRAMES, ROWS=ROWS,
            ADD_ROWS=add.dim() == 2, TAIL=site is not None, BM=tile.rows, warps=tile.warps,
        )  # fmt: skip

    def transform(self, weights: Transformer, layer: int, x: Tensor, site: str | None) -> None:
        """One transformer layer, in place."""
        if self._by_head:
            self._attend_by_head(weights, layer, x)
        else:
            self._attend(weights, layer, x)
        if self._meets:
            self._feed_forward(weights, layer, x, site)
        else:
            self._widen_and_narrow(weights, x, site)

    def _attend(self, weights: Transformer, layer: int, x: Tensor) -> None:
        o, layout, table, rows, launch, n = self._o, self._layout, self._table, self._rows, self._launch, self._channels
        config, splits = o._config, self._splits
        inner, kp, offset = config.estimator_heads * config.head_width, power(n), layout.attention(self._step, layer)
        tile = launch.tile("qkv", rows)
        columns = min(tile.columns, inner)
        launch(
            queries_keys_values, (3 * inner // (columns * tile.loop), ceil(rows, tile.rows)), x, weights.qkv.weight, weights.qkv.bias,
            o._queries, self._pool, table["own"], rows, layout.elements, offset, INNER=inner, K=n, KP=kp, EPS=_EPSILON,
            FRAMES=CHUNK_FRAMES, ROWS=ROWS, BM=tile.rows, BN=columns, LOOP=tile.loop, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        tile = launch.tile("attention", rows)
        launch(
            paged_attention, (self._units * ROWS, config.estimator_heads, splits), o._queries, self._pool, table["pages"], table["counts"],
            table["frames"], o._parts if splits > 1 else o._attended, o._norms, rows, layout.elements, offset, TABLE=TABLE,
            FRAMES=CHUNK_FRAMES, FP=power(CHUNK_FRAMES), ROWS=ROWS, HEADS=config.estimator_heads, WIDTH=config.head_width, SPLITS=splits,
            LEAST=2, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        if splits > 1:
            launch(
                joined_parts, (rows,), o._parts, o._norms, o._attended, rows, HEADS=config.estimator_heads, WIDTH=config.head_width,
                SPLITS=splits,
            )  # fmt: skip
        self._onto(o._attended, weights.out, x, None, "out")

    def _widen_and_narrow(self, weights: Transformer, x: Tensor, site: str | None) -> None:
        o, n, rows, tile = self._o, self._channels, self._rows, self._launch.tile("widen", self._rows)
        self._launch(
            normed_linear, (ceil(4 * n, tile.columns * tile.loop), ceil(rows, tile.rows)), x, weights.widen.weight,
            weights.widen.bias, o._wide, rows, N=4 * n, K=n, KP=power(n), EPS=_EPSILON, ACTIVATION=GELU,
            BM=tile.rows, BN=tile.columns, LOOP=tile.loop, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        self._onto(o._wide, weights.narrow, x, site, "narrow")

    def _attend_by_head(self, weights: Transformer, layer: int, x: Tensor) -> None:
        o, layout, table, config, n = self._o, self._layout, self._table, self._o._config, self._channels
        tile = self._launch.tile("head", self._rows)
        self._launch(
            attend_by_head, (self._units * ROWS, config.estimator_heads), x, weights.qkv.weight, weights.qkv.bias, weights.out.weight,
            o._heads, self._pool, table["own"], table["pages"], table["counts"], table["frames"], self._rows, layout.elements,
            layout.attention(self._step, layer), K=n, KP=power(n), EPS=_EPSILON, TABLE=TABLE, FRAMES=CHUNK_FRAMES, FP=power(CHUNK_FRAMES),
            ROWS=ROWS, HEADS=config.estimator_heads, WIDTH=config.head_width, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        if self._meets:  # and adds them itself
            return
        tile = self._launch.tile("rows", self._rows)
        self._launch(
            heads_onto_residual, (ceil(self._rows, tile.rows),), x, o._heads, weights.out.bias, self._rows, N=n, NP=power(n),
            HEADS=config.estimator_heads, BM=tile.rows, warps=tile.warps,
        )  # fmt: skip

    def _feed_forward(self, weights: Transformer, layer: int, x: Tensor, site: str | None) -> None:
        o, n, rows = self._o, self._channels, self._rows
        tile, hidden = self._launch.tile("feed forward", rows), 4 * n
        meeting = (self._step * self._layout.estimator_layers + layer) * o.row_tiles
        self._launch(
            feed_forward, (hidden // tile.inner, ceil(rows, tile.rows)), x, o._heads, weights.out.bias, weights.widen.weight,
            weights.widen.bias, weights.narrow.weight, weights.narrow.bias, o._partial, o.counters, self._pool, self._table["own"], rows,
            self._layout.elements, self._layout.tail(self._step, site) if site else 0, meeting, N=n, H=hidden, EPS=_EPSILON,
            FRAMES=CHUNK_FRAMES, ROWS=ROWS, TAIL=site is not None, BM=tile.rows, HIDDEN=tile.inner,
            HEADS=o._config.estimator_heads if self._by_head else 0, warps=tile.warps,
        )  # fmt: skip

    def _onto(self, a: Tensor, weights: Product, x: Tensor, site: str | None, kind: str) -> None:
        tile, n = self._launch.tile(kind, self._rows), self._channels
        self._launch(
            onto_residual, (ceil(n, tile.columns), ceil(self._rows, tile.rows)), a, weights.weight, weights.bias, x, self._pool,
            self._table["own"], self._rows, self._layout.elements, self._layout.tail(self._step, site) if site else 0, N=n,
            K=a.shape[1], FRAMES=CHUNK_FRAMES, ROWS=ROWS, TAIL=site is not None, BM=tile.rows, BN=tile.columns, BK=tile.inner,
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
