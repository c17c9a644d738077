"""Step-Audio2's diffusion transformer as a sequence of kernels: the arithmetic of
`flow.step_dit.estimator` over paged state, nine launches a block.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.layers import Tensors
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.step_dit.weights import CONVOLUTION_TAPS, StepDitConfig
from services.token2wav.gpu.device.launcher import Launcher, ceil, divisor, power
from services.token2wav.gpu.kernels.block_convolution import convolved, normed_rows
from services.token2wav.gpu.kernels.modulated import modulated_queries_keys_values
from services.token2wav.gpu.paged_flow.dit.transformer import Sizes, StreamBuffers, TransformerPass, left, right
from services.token2wav.gpu.paged_flow.kept_numbers import AS_OPERANDS, KeptNumbers
from services.token2wav.gpu.paged_flow.step_dit.page_layout import KEPT_FRAMES, StepDitLayout
from services.token2wav.gpu.paged_flow.step_dit.weights import StepDitBlock, last_product, time_embeddings
from services.token2wav.gpu.paged_flow.unit_table import UnitTable
from services.token2wav.gpu.paged_flow.weights import product

_MODULATED, _PLAIN = 1e-6, 1e-5
"""Epsilon of norms that the time scales and shifts, and of those with weights."""


class PagedStepDit(StreamBuffers):
    """Weights, and buffers; see `StreamBuffers`."""

    def __init__(
        self, config: StepDitConfig, tensors: Mapping[str, Tensor], most: int, dtype: torch.dtype, launch: Launcher,
        splits: int = 4, split_units: int = 4, kept: KeptNumbers = AS_OPERANDS,
    ) -> None:  # fmt: skip
        weights = Tensors(tensors).within(ESTIMATOR[:-1])
        device = weights["in_proj.bias"].device
        sizes = Sizes(
            config.width, config.heads, config.head_width, config.feed_forward, config.guidance, padded=True
        )  # fmt: skip
        super().__init__(sizes, most, dtype, launch, device, splits, split_units, kept)
        times = time_embeddings(weights, device)
        self.project = product(weights["in_proj.weight"], weights["in_proj.bias"], dtype)
        self.blocks = [
            StepDitBlock(weights.within(f"blocks.{at}"), times, config.head_width, dtype) for at in range(config.depth)
        ]
        self.last = last_product(weights, times, dtype)
        rows = most * ROWS * CHUNK_FRAMES
        past_rows = most * ROWS * (KEPT_FRAMES + CHUNK_FRAMES)
        self.with_past = torch.zeros(past_rows, config.width, dtype=dtype, device=device)
        self.convolved = torch.zeros(rows, config.width, device=device)

    def step(
        self, step: int, table: UnitTable, pool: Tensor, layout: StepDitLayout, units: int, *, long: bool = False,
        apart: bool = False,
    ) -> None:  # fmt: skip
        """Euler step 0..9 of the first `units` units. long: for streams with many pages, see
        `splits`. apart: makes no difference.
        """
        call = _Pass(self, step, table, pool, layout, units, self.splits if long else 1)
        call.onto(self.joined, self.project, None, self.blocks[0].qkv, "dit out")
        for at, block in enumerate(self.blocks):
            call.attend(block, at)
            call.convolve(block, at)
            call.feed_forward(block, self.blocks[at + 1].qkv if at + 1 < len(self.blocks) else self.last)
        call.euler_step(self.last)


class _Pass(TransformerPass):
    """The launches of one Euler step; see `TransformerPass`."""

    _b: PagedStepDit

    def attend(self, weights: StepDitBlock, block: int) -> None:
        """Add a block's attention to the stream."""
        b, sizes, tile = self._b, self._b.sizes, self.tile("dit qkv")
        columns = max(divisor(sizes.inner, tile.columns), sizes.head_width)
        self._launch(
            modulated_queries_keys_values, (3 * sizes.inner // columns, ceil(self._rows, tile.rows)),
            left(b.copy, tile), b.moments, weights.qkv.gained[self._step], right(weights.qkv.weight, tile, columns),
            weights.qkv.bias[self._step], weights.head_norms, weights.head_norms, self._table["position"], b.queries,
            self._pool, self._kept_pool, self._table["own"], self._rows, self._layout.elements,
            self._layout.attention(self._step, block), N=sizes.inner, K=self._width, WIDTH=sizes.head_width,
            RATIO=self._ratio, LARGEST=b.kept.largest, PLACES=0, HEAD_EPS=_PLAIN, **self.normed(), FRAMES=CHUNK_FRAMES,
            ROWS=ROWS, DESCRIBED=tile.described, BM=tile.rows, BN=columns, BK=tile.inner, warps=tile.warps,
            stages=tile.stages,
        )  # fmt: skip
        self.attended(block)
        self.onto(b.attended, weights.out, weights.attention_gate, None, "dit out")

    def convolve(self, weights: StepDitBlock, block: int) -> None:
        """Add a block's convolutions to the stream."""
        b, step, between = self._b, self._step, weights.between
        scale, shift = weights.convolution_scale[step], weights.convolution_shift[step]
        tails = [self._layout.tail(step, block, at) for at in (0, 1)]
        self._with_past(b.stream, scale, shift, _MODULATED, tails[0], mish=False)
        self._convolved(weights, 0, b.convolved, onto=False)
        self._with_past(b.convolved, between.weight, between.bias, _PLAIN, tails[1], mish=True)
        self._part = self._convolved(weights, 1, b.stream, onto=True)

    @property
    def _past_rows(self) -> int:
        return self._units * ROWS * (KEPT_FRAMES + CHUNK_FRAMES)

    def _with_past(self, x: Tensor, gain: Tensor, shift: Tensor, epsilon: float, tail: int, *, mish: bool) -> None:
        b, tile = self._b, self.tile("step rows")
        self._launch(
            normed_rows, (ceil(self._past_rows, tile.rows),), x, gain, shift, b.with_past, self._pool,
            self._table["own"], self._table["before"], self._table["previous"], self._table["position"],
            self._past_rows, self._layout.elements, tail, N=self._width, NP=power(self._width), EPS=epsilon,
            FRAMES=CHUNK_FRAMES, ROWS=ROWS, KEPT=KEPT_FRAMES, MISH=mish, BM=tile.rows, warps=tile.warps,
        )  # fmt: skip

    def _convolved(self, weights: StepDitBlock, at: int, x: Tensor, *, onto: bool) -> int:
        """The columns of a tile."""
        b, tile, made = self._b, self.tile("step convolution"), weights.convolutions[at]
        self._launch(
            convolved, (ceil(self._width, tile.columns), ceil(self._past_rows, tile.rows)), left(b.with_past, tile),
            right(made.weight, tile), made.bias, weights.convolution_gate[self._step], x, b.copy, b.moments,
            weights.widen.gain[self._step], self._past_rows, N=self._width, C=self._width, FRAMES=CHUNK_FRAMES,
            TAPS=CONVOLUTION_TAPS, ONTO=onto, DESCRIBED=tile.described, BM=tile.rows, BN=tile.columns, BK=tile.inner,
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        return tile.columns
