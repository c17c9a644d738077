"""CosyVoice3's diffusion transformer as a sequence of kernels: the arithmetic of
`flow.dit.estimator` over paged state, five launches a block.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, MAX_FLOW_FRAMES, MEL_BINS
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.dit.weights import POSITION_GROUPS, POSITION_TAPS, DitConfig
from services.token2wav.flow.layers import Tensors
from services.token2wav.flow.solver import ROWS
from services.token2wav.gpu.device.launcher import Launcher, ceil, divisor, power
from services.token2wav.gpu.kernels.modulated import joined_inputs, modulated_queries_keys_values
from services.token2wav.gpu.kernels.position_convolution import position_convolution
from services.token2wav.gpu.paged_flow.dit.page_layout import POSITION_FRAMES, DitLayout
from services.token2wav.gpu.paged_flow.dit.transformer import Sizes, StreamBuffers, TransformerPass, left, right
from services.token2wav.gpu.paged_flow.dit.weights import DitBlock, DitInputs, last_product, time_embeddings, turns
from services.token2wav.gpu.paged_flow.kept_numbers import AS_OPERANDS, KeptNumbers
from services.token2wav.gpu.paged_flow.unit_table import UnitTable
from services.token2wav.gpu.paged_flow.weights import Product


class PagedDit(StreamBuffers):
    """Weights, and buffers; see `StreamBuffers`."""

    def __init__(
        self, config: DitConfig, tensors: Mapping[str, Tensor], most: int, dtype: torch.dtype, launch: Launcher,
        splits: int = 4, split_units: int = 4, kept: KeptNumbers = AS_OPERANDS,
    ) -> None:  # fmt: skip
        weights, width = Tensors(tensors).within(ESTIMATOR[:-1]), config.width
        device = weights["proj_out.bias"].device
        sizes = Sizes(width, config.heads, config.head_width, config.feed_forward, config.guidance)
        sizes = replace(sizes, smallest_part=min(sizes.smallest_part, width // POSITION_GROUPS))
        super().__init__(sizes, most, dtype, launch, device, splits, split_units, kept)
        times = time_embeddings(weights, device)
        self.inputs = DitInputs(weights.within("input_embed"), dtype)
        self.blocks = [
            DitBlock(weights.within(f"transformer_blocks.{at}"), times, config.head_width, dtype)
            for at in range(config.depth)
        ]
        self.last = last_product(weights, times, dtype)
        self.turns = turns(weights, MAX_FLOW_FRAMES)
        self.between = torch.zeros(most * ROWS * CHUNK_FRAMES, width, dtype=dtype, device=device)

    def step(
        self, step: int, table: UnitTable, pool: Tensor, layout: DitLayout, units: int, *, long: bool = False,
        apart: bool = False,
    ) -> None:  # fmt: skip
        """Euler step 0..9 of the first `units` units. long: for streams with many pages, see
        `splits`. apart: makes no difference.
        """
        call = _Pass(self, step, table, pool, layout, units, self.splits if long else 1)
        call.inputs()
        for at, block in enumerate(self.blocks):
            call.attend(block, at)
            call.feed_forward(block, self.blocks[at + 1].qkv if at + 1 < len(self.blocks) else self.last)
        call.euler_step(self.last)


class _Pass(TransformerPass):
    """The launches of one Euler step; see `TransformerPass`."""

    _b: PagedDit

    def inputs(self) -> None:
        """The joined inputs and their position become the stream."""
        b, width, project = self._b, self._width, self._b.inputs.project
        tile = self.tile("dit in")
        first, second = (self._layout.position_tail(self._step, at) for at in (0, 1))
        self._launch(
            joined_inputs, (ceil(width, tile.columns), ceil(self._rows, tile.rows)), b.joined, project.weight,
            project.bias, b.stream, b.copy, self._pool, self._table["own"], self._rows, self._layout.elements, first,
            N=width, K=4 * MEL_BINS, FRAMES=CHUNK_FRAMES, ROWS=ROWS, KEPT=POSITION_FRAMES, BM=tile.rows,
            BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        self._position(b.inputs.positions[0], b.copy, b.between, first, second, onto=False)
        self._position(b.inputs.positions[1], b.between, b.copy, second, 0, onto=True)
        self._part = width // POSITION_GROUPS

    def _position(self, weights: Product, a: Tensor, out: Tensor, tail: int, out_tail: int, *, onto: bool) -> None:
        b, tile, group = self._b, self.tile("dit position"), self._width // POSITION_GROUPS
        self._launch(
            position_convolution, (POSITION_GROUPS, ceil(self._rows, tile.rows)), a, weights.weight, weights.bias, out,
            b.stream, b.moments, b.blocks[0].qkv.gain[self._step], self._pool, self._table["own"],
            self._table["before"], self._rows, self._layout.elements, tail, out_tail, N=self._width, GROUP=group,
            GP=power(group), FRAMES=CHUNK_FRAMES, ROWS=ROWS, TAPS=POSITION_TAPS, ONTO=onto, BM=tile.rows, BK=tile.inner,
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip

    def attend(self, weights: DitBlock, block: int) -> None:
        """Add a block's attention to the stream."""
        b, width, tile = self._b, self._width, self.tile("dit qkv")
        columns = divisor(width, tile.columns)
        if self._ratio > 1:
            columns = max(columns, b.sizes.head_width)  # a scale is of a whole head
        self._launch(
            modulated_queries_keys_values, (3 * width // columns, ceil(self._rows, tile.rows)), left(b.copy, tile),
            b.moments, weights.qkv.gained[self._step], right(weights.qkv.weight, tile, columns),
            weights.qkv.bias[self._step], b.turns, b.turns, self._table["position"], b.queries, self._pool,
            self._kept_pool, self._table["own"], self._rows, self._layout.elements,
            self._layout.attention(self._step, block), N=width, K=width, WIDTH=b.sizes.head_width, RATIO=self._ratio,
            LARGEST=b.kept.largest, PLACES=MAX_FLOW_FRAMES, HEAD_EPS=0, **self.normed(), FRAMES=CHUNK_FRAMES,
            ROWS=ROWS, DESCRIBED=tile.described, BM=tile.rows, BN=columns, BK=tile.inner, warps=tile.warps,
            stages=tile.stages,
        )  # fmt: skip
        self.attended(block)
        self.onto(b.attended, weights.out, weights.attention_gate, weights.widen, "dit out")
