"""One decode step of the speech-token model for B rows: a fixed list of kernels on fixed memory, so
that a CUDA graph can hold it.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from services.llm.generation.request import MOST_TOKENS
from services.llm.generation.script import Table
from services.llm.gpu.kernels import attention, products, sampling
from services.llm.gpu.layout import PAGE
from services.llm.gpu.packing import PackedModel
from services.llm.gpu.slots import COLUMNS
from services.llm.gpu.tuning import Blocks, Tuning, depth, once, tuning


@dataclass(frozen=True)
class Memory:
    """The device memory that persists between steps. Page 0 and slot 0 are dummies: padding rows
    use them.
    """

    cache: Tensor
    """[layers, pages, key heads, 2, PAGE, head size]"""
    pages: Tensor
    """int32 [slots, most pages]"""
    state: Tensor
    """int32 [slots, COLUMNS]"""
    history: Tensor
    """int32 [slots, ring]"""
    replay: Tensor
    """int32 [slots, MOST_TOKENS]"""

    @classmethod
    def reserve(cls, model: PackedModel, *, pages: int, slots: int, positions: int) -> "Memory":
        """Allocate memory for `slots` sequences of at most `positions` positions and for `pages`
        pages, plus the dummy slot and page.
        """
        config, device = model.config, model.device
        ring = 1 << max(3, (config.sampling.win_size - 1).bit_length())
        shape = (config.layers, pages + 1, config.kv_heads, 2, PAGE, config.head_size)
        whole = partial(torch.zeros, dtype=torch.int32, device=device)
        return cls(
            cache=torch.zeros(shape, dtype=model.dtype, device=device),
            pages=whole(slots + 1, -(-positions // PAGE)),
            state=whole(slots + 1, COLUMNS),
            history=whole(slots + 1, ring),
            replay=whole(slots + 1, MOST_TOKENS),
        )


def page_bytes(model: PackedModel) -> int:
    """Bytes of one page in all layers."""
    return 2 * model.config.layers * model.config.kv_width * PAGE * model.table.element_size()


class DecodeStep:
    """The step of B rows. `rows` int32 [B] is the slot of each row, `decisions` int32 [B] and
    `logits` float32 [B, ids] are the results.

    blocks: None for those of `tuning`; invariant: see there. `launch` enqueues the kernels on the
    current stream; it neither allocates nor waits.
    """

    def __init__(
        self, model: PackedModel, memory: Memory, batch: int, blocks: Tuning | None = None, *, invariant: bool = False
    ) -> None:
        exact = model.dtype == torch.float32
        self._model, self._memory, self.batch = model, memory, batch
        self._blocks = blocks or tuning(batch, exact=exact, invariant=invariant)
        # A kernel can start while the previous one runs from compute capability 9.0 on.
        if model.device.type != "cuda" or torch.cuda.get_device_capability(model.device) < (9, 0):
            self._blocks = replace(self._blocks, pdl=0)
        self._overlap = {"PDL": self._blocks.pdl} | ({"launch_pdl": True} if self._blocks.pdl else {})
        """Arguments of every kernel but the first, which follows no other."""
        config, device = model.config, model.device
        self._precision = "ieee" if exact else "tf32"
        self._group = max(16, 1 << (config.heads // config.kv_heads - 1).bit_length())
        self._ids = config.speech.rows
        self._pieces = -(-self._ids // sampling.PIECE)
        self._top = max(2, 1 << (config.sampling.top_k - 1).bit_length())
        query = config.heads * config.head_size
        typed = partial(torch.zeros, dtype=model.dtype, device=device)
        real = partial(torch.zeros, dtype=torch.float32, device=device)
        whole = partial(torch.zeros, dtype=torch.int32, device=device)
        self.rows, self.decisions = whole(batch), whole(batch)
        self._position, self._place, self._length = whole(batch), whole(batch), whole(batch)
        self._residual, self._rounded = real(batch, config.hidden_size), typed(batch, config.hidden_size)
        self._queries, self._attended = typed(batch, query), typed(batch, query)
        self._gated = typed(batch, config.intermediate_size)
        pairs = batch * config.kv_heads
        splits = self._blocks.splits
        self._row_pages = whole(batch, memory.pages.shape[1])
        self._partial = real(pairs, splits, self._group, config.head_size)
        self._stats = real(pairs, splits, 2, self._group)
        self._arrived = whole(pairs)
        adding = (self._blocks.out, self._blocks.down)
        grids = [self._grid(blocks, config.hidden_size) for blocks in adding]
        self._tiles = [columns for columns, _ in grids]
        self._split_arrived = [whole(math.prod(grid)) for grid in grids]
        self._split_sums = [
            real(math.prod(grid) * blocks.split * blocks.rows * blocks.columns if blocks.split > 1 else 1)
            for grid, blocks in zip(grids, adding, strict=True)
        ]
        self._squares = [real(tiles, batch) for tiles in self._tiles]
        self.logits = real(batch, self._ids)
        self._best = real(batch, self._pieces, self._top, dtype=torch.int64)
        self._sums, self._peaks = real(batch, self._pieces, dtype=torch.float64), real(batch, self._pieces)
        self._finite = whole(batch, self._pieces)

    def launch(self) -> None:
        """Enqueue the whole step."""
        self.enter()
        for index in range(self._model.config.layers):
            self.layer(index)
        self.score()
        self.decide()

    def enter(self) -> None:
        """Read the position of each row and embed its input."""
        model, memory, hidden, most_pages = (
            self._model,
            self._memory,
            self._model.config.hidden_size,
            self._memory.pages.shape[1],
        )
        sampling.enter[(self.batch,)](
            memory.state, memory.pages, self.rows, model.table, self._position, self._place, self._length,
            self._row_pages, self._residual,
            self._rounded, self._squares[1], most_pages, self.batch, HIDDEN=hidden,
            PADDED=1 << (hidden - 1).bit_length(),
            PAGES_PADDED=1 << (most_pages - 1).bit_length(), **self._tile_arguments(1), PAGE=PAGE, PDL=self._blocks.pdl,
            num_warps=4,
        )  # fmt: skip

    def decide(self) -> None:
        """Sample an id for each row."""
        model, memory, config = self._model, self._memory, self._model.config
        form = {
            "VOCABULARY": self._ids,
            "TOKENS": config.speech.tokens,
            "END": config.speech.end,
            "FILL": config.speech.fill,
            "REFERENCE": config.speech.masked_by_reference,
            "PIECES": self._pieces,
            "PIECE": sampling.PIECE,
            "TOP": self._top,
            **self._overlap,
        }
        partials = (self._best, self._sums, self._peaks, self._finite)
        sampling.scan[(self.batch, self._pieces)](self.logits, memory.state, self.rows, *partials, **form, num_warps=4)
        limits = config.sampling
        sampling.choose[(self.batch,)](
            self.logits, memory.state, self.rows, *partials, memory.history, memory.replay,
            self.decisions, limits.top_p, math.ceil(limits.win_size * limits.tau_r), memory.replay.shape[1],
            model.starts[Table.SPEECH],
            PIECES_PADDED=1 << (self._pieces - 1).bit_length(), TOP_K=limits.top_k, WINDOW=limits.win_size,
            RING=memory.history.shape[1],
            **form, num_warps=4,
        )  # fmt: skip

    def layer(self, index: int) -> None:
        """Enqueue the kernels of one block."""
        self.project(index)
        self.attend(index)
        weights = self._model.layers[index]
        self.add(self._blocks.out, self._attended, weights.out, 0)
        self.gate(index)
        self.add(self._blocks.down, self._gated, weights.down, 1)

    def project(self, index: int) -> None:
        model, config, blocks = self._model, self._model.config, self._blocks.heads
        query, hidden = config.heads * config.head_size, config.hidden_size
        layer = model.layers[index]
        products.project_heads[self._grid(blocks, query + 2 * config.kv_width)](
            self._rounded, self._squares[1], layer.qkv, layer.bias, model.cosines, model.sines, self._position,
            self._place,
            self._queries, self._memory.cache[index], self.batch, config.rms_norm_eps, HIDDEN=hidden, QUERY=query,
            KEYS=config.kv_width, D=config.head_size,
            PAGE=PAGE, **self._tile_arguments(1), **self._block_arguments(blocks, hidden),
        )  # fmt: skip

    def attend(self, index: int) -> None:
        config, memory = self._model.config, self._memory
        attention.attend_row[(self.batch, config.kv_heads, self._blocks.splits)](
            self._queries, memory.cache[index], self._row_pages, self._length, self._partial, self._stats,
            self._arrived,
            self._attended, config.head_size**-0.5, memory.pages.shape[1], HEADS=config.heads,
            KEY_HEADS=config.kv_heads,
            D=config.head_size,
            PAGE=PAGE, G=self._group, SPLITS=self._blocks.splits, PRECISION=self._precision,
            num_warps=self._blocks.attend_warps, num_stages=self._blocks.attend_stages, **self._overlap,
        )  # fmt: skip

    def add(self, blocks: Blocks, x: Tensor, weights: Tensor, which: int) -> None:
        width, deep = weights.shape
        form = self._block_arguments(blocks, deep)
        steps = -(-deep // (depth(blocks, deep) * blocks.split))
        products.add_product[(*self._grid(blocks, width), blocks.split)](
            x, weights, self._residual, self._rounded, self._squares[which], self._split_sums[which],
            self._split_arrived[which], self.batch,
            N=width, K=deep, SPLIT=blocks.split, STEPS=steps, **form,
        )  # fmt: skip

    def gate(self, index: int) -> None:
        config, blocks = self._model.config, self._blocks.gated
        weights = self._model.layers[index].gate_up
        products.gated_product[self._grid(blocks, config.intermediate_size)](
            self._rounded, self._squares[0], weights, self._gated, self.batch, config.rms_norm_eps,
            MLP=config.intermediate_size,
            HIDDEN=config.hidden_size,
            **self._tile_arguments(0), **self._block_arguments(blocks, config.hidden_size),
        )  # fmt: skip

    def score(self) -> None:
        model, config, blocks = self._model, self._model.config, self._blocks.score
        exact = blocks.rows == 1 or model.dtype == torch.float32
        form = self._block_arguments(blocks, config.hidden_size) | {"PRECISION": "ieee" if exact else "tf32x3"}
        products.score[self._grid(blocks, self._ids)](
            self._residual, self._squares[1], model.head, model.head_bias, self.logits, self.batch, config.rms_norm_eps,
            VOCABULARY=self._ids, HIDDEN=config.hidden_size, **self._tile_arguments(1), **form,
        )  # fmt: skip

    def _grid(self, blocks: Blocks, width: int) -> tuple[int, int]:
        return -(-width // blocks.columns), -(-self.batch // blocks.rows)

    def _block_arguments(self, blocks: Blocks, width: int) -> dict[str, object]:
        return {
            "BM": blocks.rows, "BN": blocks.columns, "BK": depth(blocks, width), "SUM": blocks.rows == 1,
            "ONCE": once(blocks, width),
            "PRECISION": self._precision, "num_warps": blocks.warps, "num_stages": blocks.stages, **self._overlap,
        }  # fmt: skip

    def _tile_arguments(self, which: int) -> dict[str, int]:
        """Number of partial sums of squares, as kernel arguments."""
        return {"TILES": self._tiles[which], "TILES_PADDED": 1 << (self._tiles[which] - 1).bit_length()}
