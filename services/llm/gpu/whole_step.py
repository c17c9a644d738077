"""The decode step of a few rows as one launch, whose programs stay on the device and wait for each
other (`kernels.whole_step`), in place of a launch for each part of a layer.
"""

from dataclasses import dataclass, replace
from typing import Any

import math
import torch

from services.llm.generation.script import Table
from services.llm.gpu.decode import DecodeStep, Memory
from services.llm.gpu.kernels import sampling
from services.llm.gpu.kernels import whole_step as kernels
from services.llm.gpu.layout import PAGE
from services.llm.gpu.packing import PackedModel
from services.llm.gpu.tuning import tuning

MOST_ROWS = 8
"""More rows are not faster this way: a program multiplies and adds for each of them."""
LANES, LANE_BYTES = 32, 16
"""A warp loads 512 bytes of a column of weights at once."""
_LAYERS = (kernels.HEADS_PHASE, kernels.ATTEND, kernels.OUT, kernels.GATE, kernels.DOWN)
_LAST = (kernels.SCORE, kernels.SCAN, kernels.CHOOSE)
_ALL = (1 << 9) - 1


@dataclass(frozen=True)
class Residence:
    """How the launch occupies the device. programs: at most one to a multiprocessor. columns: of
    weights that a program multiplies at a time, a power of two of at least 2. registers: most of
    a thread, None for as many as the compiler takes. splits: programs that share the keys of one row
    and key head.
    """

    programs: int
    columns: int = 8
    warps: int = 8
    registers: int | None = None
    splits: int = 16


class WholeStep(DecodeStep):
    """The step of B rows, 1, 2, 4 or 8, as one launch. `launch_apart` runs the same phases as
    launches of their own, none of which waits.
    """

    def __init__(self, model: PackedModel, memory: Memory, batch: int, residence: Residence) -> None:
        exact = model.dtype == torch.float32
        blocks = replace(tuning(batch, exact=exact), splits=residence.splits, pdl=0)
        super().__init__(model, memory, batch, blocks)
        config, device = model.config, model.device
        self._residence = residence
        tiles = -(-config.hidden_size // residence.columns)
        self._after_out = torch.zeros(tiles, batch, device=device)
        self._after_down = torch.zeros(tiles, batch, device=device)
        self._counters = torch.zeros(2, dtype=torch.int32, device=device)
        most_pages = memory.pages.shape[1]
        self._constants: dict[str, Any] = {
            "PROGRAMS": residence.programs, "BATCH": batch, "BN": residence.columns,
            "CHUNK": LANES * LANE_BYTES // model.table.element_size(), "HEAD_CHUNK": LANES * LANE_BYTES // 4,
            "HIDDEN": config.hidden_size, "HIDDEN_PADDED": _power(config.hidden_size),
            "PAGES_PADDED": _power(most_pages), "MLP": config.intermediate_size, "HEADS": config.heads,
            "KEY_HEADS": config.kv_heads, "D": config.head_size, "PAGE": PAGE, "G": self._group, "SPLITS": residence.splits,
            "PRECISION": self._precision, "TILES": tiles, "TILES_PADDED": _power(tiles), "VOCABULARY": self._ids,
            "TOKENS": config.speech.tokens, "END": config.speech.end, "FILL": config.speech.fill,
            "REFERENCE": config.speech.masked_by_reference, "PIECES": self._pieces,
            "PIECES_PADDED": _power(self._pieces), "PIECE": sampling.PIECE, "TOP": self._top,
            "TOP_K": config.sampling.top_k, "WINDOW": config.sampling.win_size, "RING": memory.history.shape[1],
            "num_warps": residence.warps, "num_stages": 2,
        }  # fmt: skip
        if residence.registers:
            self._constants["maxnreg"] = residence.registers

    def launch(self) -> None:
        """Enqueue the whole step. All programs have to be on the device at once."""
        self._launch(_ALL, 0, self._model.config.layers, meet=True)

    def launch_apart(self) -> None:
        """Enqueue every phase by itself."""
        self._launch(kernels.ENTER, 0, 0)
        for layer in range(self._model.config.layers):
            for phase in _LAYERS:
                self._launch(phase, layer, layer + 1)
        for phase in _LAST:
            self._launch(phase, 0, 0)

    def _launch(self, phases: int, first_layer: int, last_layer: int, *, meet: bool = False) -> None:
        model, memory, config, stacked = self._model, self._memory, self._model.config, self._model.stacked
        limits = config.sampling
        kernels.whole_step[(self._residence.programs,)](
            memory.state, memory.pages, self.rows, model.table, self._position, self._place, self._length,
            self._row_pages, self._residual, self._rounded, self._after_out, self._after_down,
            stacked.qkv, stacked.bias, stacked.out, stacked.gate_up, stacked.down, model.head, model.head_bias,
            model.cosines, model.sines, self._queries, memory.cache, self._partial, self._stats, self._arrived,
            self._attended, self._gated, self.logits, self._best, self._sums, self._peaks, self._finite,
            memory.history, memory.replay, self.decisions, self._counters,
            first_layer, last_layer, memory.cache.stride(0), config.rms_norm_eps, config.head_size**-0.5,
            limits.top_p, math.ceil(limits.win_size * limits.tau_r), memory.pages.shape[1], memory.replay.shape[1],
            model.starts[Table.SPEECH],
            PHASES=int(phases), MEET=meet, **self._constants,
        )  # fmt: skip


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
