"""The estimator of the flow's velocity as a sequence of kernels: the arithmetic of `flow.estimator`
over paged state.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS, MEL_BINS
from services.token2wav.flow.estimator import Estimator
from services.token2wav.flow.layers import Tensors
from services.token2wav.flow.solver import ROWS, euler_schedule
from services.token2wav.flow.weights import ESTIMATOR, FlowConfig
from services.token2wav.gpu.device.launcher import Launcher, ceil, power
from services.token2wav.gpu.kernels.convolution import causal_convolution, norm_mish
from services.token2wav.gpu.kernels.euler import euler_step, prepare
from services.token2wav.gpu.paged_flow.page_layout import Layout
from services.token2wav.gpu.paged_flow.transformers import TransformerBuffers, Transformers
from services.token2wav.gpu.paged_flow.unit_table import UnitTable
from services.token2wav.gpu.paged_flow.weights import Level, Norm, Product, convolution, product


class PagedEstimator:
    """Weights, and buffers for a pass over at most `most` units; the state of streams is in the
    pool's pages.

    splits, split_units, barrier_units, by_head: see `TransformerBuffers`; keys are split in `long`
    passes.
    """

    def __init__(
        self, config: FlowConfig, tensors: Mapping[str, Tensor], most: int, dtype: torch.dtype, launch: Launcher,
        splits: int = 4, split_units: int = 4, barrier_units: int = 0, by_head: int = 0,
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
        self._final, self._final_norm = (
            convolution(weights.within("final_block.block.0"), dtype),
            Norm.of(weights.within("final_block.block.2")),
        )
        self._project = product(weights["final_proj.weight"].squeeze(2), weights["final_proj.bias"], dtype)
        self._config, self._launch, self._splits, self.split_units = config, launch, splits, split_units
        rows, channels = most * ROWS * CHUNK_FRAMES, config.channels

        def zeros(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self.x = zeros(most, CHUNK_FRAMES, MEL_BINS)
        """The mel between Euler steps, float32 [units, 50, 80]; after the last step, the result."""
        self._inputs = zeros(rows, 4 * MEL_BINS, kind=dtype)
        self._a, self._b, self._y, self._shortcut = (zeros(rows, channels) for _ in range(4))
        self._h = zeros(rows, channels, kind=dtype)
        self._no_rows = zeros(1)
        self.transformer_buffers = TransformerBuffers(
            config, most, dtype, device, launch, splits, split_units, barrier_units, by_head
        )

    def prepare(self, mu: Tensor, noise: Tensor, table: UnitTable, pool: Tensor, layout: Layout, units: int) -> None:
        """Write the first step's input and reset the barrier counters: mu float32 [units, 50, 80],
        noise float32 [15000, 80].
        """
        self.transformer_buffers.reset_barriers(units)
        self._launch(
            prepare, (units, CHUNK_FRAMES), mu, table.speaker, table.condition, noise, table["position"], self.x,
            self._inputs,
            pool, table["own"], layout.elements, layout.tail(0, "in"), layout.tail_step, FRAMES=CHUNK_FRAMES,
            BINS=MEL_BINS,
            BP=power(MEL_BINS), STEPS=EULER_STEPS if layout.stored else 1, warps=1,
        )  # fmt: skip

    def step(
        self, step: int, table: UnitTable, pool: Tensor, layout: Layout, units: int, *, long: bool = False
    ) -> None:
        """Euler step 0..9 of the first `units` units. long: for streams with many pages, see
        `splits`.
        """
        call = _Pass(self, step, table, pool, layout, units, self._splits if long else 1)
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
        last = step == EULER_STEPS - 1
        self._launch(
            euler_step, (units, ceil(CHUNK_FRAMES, 16)), self._y, self._final_norm.weight, self._final_norm.bias,
            self._project.weight,
            self._project.bias, self.x, self._inputs, pool, table["own"], layout.elements,
            0 if last else layout.tail(step + 1, "in"), self._dt[step], config.guidance, C=config.channels,
            CP=power(config.channels),
            FRAMES=CHUNK_FRAMES, BINS=MEL_BINS, BP=power(MEL_BINS), TAIL=not last, BM=16, warps=8,
        )  # fmt: skip


class _Pass:
    """The launches of one Euler step."""

    def __init__(
        self, owner: PagedEstimator, step: int, table: UnitTable, pool: Tensor, layout: Layout, units: int, splits: int
    ) -> None:
        self._o, self._step, self._table, self._pool, self._layout = owner, step, table, pool, layout
        self._rows = units * ROWS * CHUNK_FRAMES
        self._launch = owner._launch
        self._channels = owner._config.channels
        self._transform = Transformers(
            owner.transformer_buffers, owner._launch, step, table, pool, layout, units, splits
        )

    def convolve(
        self, x: Tensor, site: str, weights: Product, out: Tensor, out_site: str | None, *,
        second: tuple[Tensor, str] | None = None,
        shortcut: Product | None = None,
    ) -> None:  # fmt: skip
        """Raw causal convolution of x, or of x and `second` concatenated. out_site: the convolution
        that reads the tail of the result.
        """
        o, layout, tile, n = self._o, self._layout, self._launch.tile("convolution", self._rows), self._channels
        other, other_site = second if second is not None else (x, site)
        aside = shortcut if shortcut is not None else weights
        self._launch(
            causal_convolution,
            (ceil(n, tile.columns) * (2 if shortcut is not None else 1), ceil(self._rows, tile.rows)),
            x, other, weights.weight, weights.bias, aside.weight, aside.bias, o._no_rows, out, o._shortcut, self._pool,
            self._table["own"],
            self._table["before"], self._rows, layout.elements, layout.tail(self._step, site),
            layout.tail(self._step, other_site),
            layout.tail(self._step, out_site) if out_site else 0, C=x.shape[1],
            C2=other.shape[1] if second is not None else 0, N=n,
            FRAMES=CHUNK_FRAMES, ROWS=ROWS, TAPS=3, SHORTCUT=shortcut is not None, ADD=False, TAIL=out_site is not None,
            BM=tile.rows, BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
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
            self._table["own"], self._rows,
            self._layout.elements, self._layout.tail(self._step, site) if site else 0, N=n, NP=power(n),
            FRAMES=CHUNK_FRAMES, ROWS=ROWS,
            ADD_ROWS=add.dim() == 2, TAIL=site is not None, BM=tile.rows, warps=tile.warps,
        )  # fmt: skip
