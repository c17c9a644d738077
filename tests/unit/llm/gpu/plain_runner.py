"""A `Runner` on the readable model and sampler, with which the fused step runner is tested on a
CPU.
"""

from collections.abc import Sequence
from functools import partial

import torch

from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.sampling import RepetitionAwareChooser, SeededDraw, mask
from services.llm.generation.script import Input, Table, speech_inputs
from services.llm.gpu.layout import CHUNK, PAGE, TILE, ReadDecisions, Stretch, tiles_of
from services.llm.gpu.slots import NON_FINITE, NOTHING, Column, Flag

POSITIONS = 2048


class PlainRunner:
    """Implements `Runner`; decisions are computed at once."""

    page_bytes = 1

    def __init__(self, model: SpeechTokenModel, slots: int = 32, pages: int = 1024) -> None:
        self.model, self.slots, self.pages = model, slots, pages
        self.caches: dict[int, SequenceCache] = {}
        self.state: dict[int, list[int]] = {}
        self.history: dict[int, list[int]] = {}
        self.replay: dict[int, list[int]] = {}
        self.tables: dict[int, list[int]] = {}
        self.steps: list[tuple[int, ...]] = []
        self.chunks: list[int] = []
        self.order: list[str] = []
        self.broken_slots: set[int] = set()

    def row_of(self, table: int, row: int) -> int:
        return table * 1_000_000 + row

    def assign(self, slot: int, pages: Sequence[int], replay: Sequence[int]) -> None:
        assert 0 < slot <= self.slots
        assert all(0 < page <= self.pages for page in pages)
        self.caches[slot] = SequenceCache.reserve(self.model.config, POSITIONS, self.model.device)
        self.state.pop(slot, None)
        self.tables[slot] = list(pages)
        self.replay[slot], self.history[slot] = list(replay), []

    def extend(self, slot: int, first: int, pages: Sequence[int], capacity: int) -> None:
        assert len(self.tables[slot]) == first
        self.tables[slot] += pages
        if slot in self.state:
            self.state[slot][Column.CAPACITY] = capacity

    def prefill(self, stretches: Sequence[Stretch]) -> None:
        assert sum(tiles_of(len(stretch.inputs)) for stretch in stretches) <= CHUNK // TILE
        self.order.append("chunk")
        self.chunks.append(sum(len(stretch.inputs) for stretch in stretches))
        for stretch in stretches:
            assert self.caches[stretch.slot].length == stretch.position
            self._run(stretch.slot, list(stretch.inputs))

    def activate(self, slot: int, state: Sequence[int]) -> None:
        assert self.caches[slot].length == state[Column.LENGTH]
        self.state[slot] = list(state)

    def step(self, slots: Sequence[int]) -> ReadDecisions:
        self.order.append("step")
        self.steps.append(tuple(slots))
        return partial(list, [self._decide(slot) for slot in slots])

    def close(self) -> None:
        pass

    def _run(self, slot: int, rows: list[int]) -> torch.Tensor:
        assert self.caches[slot].length + len(rows) <= len(self.tables[slot]) * PAGE
        inputs = [Input(Table(row // 1_000_000), row % 1_000_000) for row in rows]
        return self.model.forward(self.model.embed(inputs), self.caches[slot])[-1:]

    def _decide(self, slot: int) -> int:
        state = self.state[slot]
        if not state[Column.ACTIVE]:
            return NOTHING
        scores = self.model.log_probabilities(self._run(slot, [state[Column.INPUT]]))[0].numpy()
        flags, decision = Flag(state[Column.FLAGS]), state[Column.DECISIONS]
        speech = self.model.config.speech
        others = [id_ for id_ in speech.special if id_ not in (speech.end, speech.fill)]
        short = state[Column.TOKENS] < state[Column.SHORTEST]
        masks = {
            Flag.MASK_END: [speech.end], Flag.MASK_FILL: [speech.fill], Flag.MASK_OTHERS: others,
            Flag.MASK_REFERENCE: [speech.masked_by_reference],
        }  # fmt: skip
        barred = [id_ for flag, ids in masks.items() if flag in flags for id_ in ids]
        if short:
            barred.append(speech.masked_by_reference if Flag.SHORT_MASKS_REFERENCE in flags else speech.end)
        seed = (state[Column.SEED_HIGH] & 0xFFFFFFFF) << 32 | state[Column.SEED_LOW] & 0xFFFFFFFF
        chooser = RepetitionAwareChooser(
            self.model.config.sampling, SeededDraw(seed, state[Column.SENTENCE] & 0xFFFFFFFF)
        )
        history = self.history[slot]
        assert len(history) == decision
        chosen = speech.fill if state[Column.FILL_AT] == decision else chooser.choose(mask(scores, barred), history)
        replayed = state[Column.TOKENS] < state[Column.REPLAY]
        if replayed and not (Flag.FILL_FIRST in flags and chosen == speech.fill):
            chosen = self.replay[slot][state[Column.TOKENS]]
        history.append(chosen)
        spoken = chosen < speech.tokens
        state[Column.LENGTH] += 1
        state[Column.DECISIONS] += 1
        state[Column.TOKENS] += spoken
        state[Column.INPUT] = self.row_of(Table.SPEECH, speech_inputs([chosen])[0].row)
        more = spoken and state[Column.TOKENS] < state[Column.LONGEST] and state[Column.LENGTH] < state[Column.CAPACITY]
        state[Column.ACTIVE] = int(more and slot not in self.broken_slots)
        return NON_FINITE if slot in self.broken_slots else chosen
