"""The steps of the engine on a device that decides by itself: while one step runs, the host reads the answer of the step before.

    prompt -> chunks -> state row -> [decode step, decode step, ...] -> a reserved id, a limit or the last position

A sequence's script is told each decision behind time and stays the judge of what it means; the device stops a sequence by the same rules,
so one that is over runs at most AHEAD rows in vain, and nothing of them is seen. Between two decode steps at most one chunk runs.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass

from cosyserve.errors import CosyserveError, InternalFault, NonFinite
from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH, SPEECH_VOCABULARY
from services.llm.engine.engine import Remove
from services.llm.engine.scheduler import Scheduler, Step
from services.llm.engine.sequence import Sequence
from services.llm.engine.stats import EngineStats
from services.llm.gpu.layout import CHUNK, TILE, Stretch, tiles_of
from services.llm.gpu.seam import Answer, Runner
from services.llm.gpu.seats import Seat, Seats, pages_for
from services.llm.gpu.state import COLUMNS, NON_FINITE, NOTHING, Column, Flag
from services.llm.request import FinishReason
from services.llm.sampling import RepetitionAwareChooser, SeededDraw
from services.llm.script import Rules

log = logging.getLogger(__name__)
AHEAD = 1
"""Steps that are launched before the answer of one is read."""


@dataclass(frozen=True)
class _Launched:
    answer: Answer
    rows: list[tuple[Sequence, Seat]]
    began: float


class FusedStepper:
    """Meets `Steps`. `remove` as in `Stepper`."""

    def __init__(self, runner: Runner, stats: EngineStats, remove: Remove) -> None:
        self._runner, self._stats, self._remove = runner, stats, remove
        self._seats = Seats(runner.slots, runner.pages)
        self._seated: dict[Sequence, Seat] = {}
        self._placed: list[Sequence] = []
        self._launched: deque[_Launched] = deque()
        self._filling: list[tuple[Sequence, Seat]] = []
        """Have a seat, and inputs that have not run."""
        self._rows: list[tuple[Sequence, Seat]] = []
        """Decide in each step."""
        self._stopped = False
        self._to_begin = True

    def slot_bytes(self, capacity: int) -> int:
        """As `Steps.slot_bytes`: whole pages."""
        return pages_for(capacity) * self._runner.page_bytes

    def plan(self, scheduler: Scheduler) -> Step | None:
        """As `Steps.plan`. Everyone who has a place is in `decode`, whatever runs of it next."""
        if scheduler.changed or self._stopped:
            scheduler.changed = self._stopped = False
            self._placed, self._to_begin = scheduler.placed(), True
        return Step(None, self._placed) if self._placed or self._launched else None

    def run(self, step: Step) -> None:
        """Launch a chunk and a decode step, as far as there is something to run, then read the answer that is due."""
        if self._to_begin:
            self._to_begin = False
            self._free()
            for sequence in step.decode:
                if not sequence.in_flight and not sequence.closed:
                    self._begin(sequence)
            seated = [(sequence, seat) for sequence in step.decode if (seat := self._seated.get(sequence)) and not sequence.closed]
            self._filling = [(sequence, seat) for sequence, seat in seated if sequence.in_flight and not seat.deciding]
            self._rows = [(sequence, seat) for sequence, seat in seated if seat.deciding]
        if self._filling:
            self._prefill()
        if self._rows:
            answer = self._runner.step([seat.slot for _, seat in self._rows])
            self._launched.append(_Launched(answer, self._rows, time.perf_counter()))
            self._stats.decode_steps += 1
        if len(self._launched) > (AHEAD if self._rows else 0):
            self._settle_all(self._launched.popleft())

    def close(self) -> None:
        """As `Steps.close`."""
        self._runner.close()

    def _free(self) -> None:
        for sequence in [sequence for sequence in self._seated if sequence.closed]:
            self._seats.give_back(self._seated.pop(sequence))

    def _begin(self, sequence: Sequence) -> None:
        """Take what the script has to run."""
        seat = self._seated.get(sequence)
        if (seat.length if seat else 0) + sequence.script.ready > sequence.capacity:
            self._finish(sequence, FinishReason.LENGTH)
            return
        try:
            inputs = [self._runner.row_of(item.table, item.row) for item in sequence.script.take()]
        except Exception as error:
            self._fail(sequence, error)
            return
        if seat is None:
            seat = self._seated[sequence] = self._seats.take(sequence.capacity)
            seat.started_ns, seat.positions = time.time_ns(), len(inputs)
            self._runner.seat(seat.slot, seat.pages, sequence.script.rules.replay)
        elif len(inputs) > 1:
            self._stats.extends += 1
        seat.pending, seat.last = inputs[:-1], inputs[-1]
        sequence.in_flight = True

    def _prefill(self) -> None:
        """One chunk for those whose inputs are waiting, first come first served; who has none left begins to decide."""
        stretches, free = list[Stretch](), CHUNK // TILE
        for _, seat in self._filling:
            if part := seat.pending[: free * TILE]:
                stretches.append(Stretch(seat.slot, seat.length, part, seat.pages))
                free -= tiles_of(len(part))
                seat.length += len(part)
                del seat.pending[: len(part)]
        if stretches:
            self._runner.prefill(stretches)
        ready = [(sequence, seat) for sequence, seat in self._filling if not seat.pending]
        self._filling = [(sequence, seat) for sequence, seat in self._filling if seat.pending]
        for sequence, seat in ready:
            try:
                row = state_row(sequence.script.rules, sequence.script.made, seat, sequence.capacity)
            except Exception as error:
                self._fail(sequence, error)
                continue
            self._runner.activate(seat.slot, row)
            seat.deciding = True
            self._rows = [*self._rows, (sequence, seat)]

    def _settle_all(self, launched: _Launched) -> None:
        decisions = launched.answer.read()
        self._stats.longest_step_seconds = max(self._stats.longest_step_seconds, time.perf_counter() - launched.began)
        for (sequence, seat), decision in zip(launched.rows, decisions, strict=True):
            if sequence.closed or decision == NOTHING:
                continue
            try:
                self._settle(sequence, seat, decision)
            except Exception as error:
                self._fail(sequence, error)

    def _settle(self, sequence: Sequence, seat: Seat, decision: int) -> None:
        script, outbox = sequence.script, sequence.outbox
        if decision == NON_FINITE:
            raise NonFinite(f"the speech-token model produced non-finite log-probabilities at token {script.made}")
        if seat.started_ns:
            outbox.prefilled(seat.started_ns, seat.positions)
            seat.started_ns = 0
            self._stats.prefills += 1
        else:
            self._stats.decode_rows += 1
        seat.length += 1
        made = script.made
        token = script.accept(decision)
        reason = script.finish
        if token is not None:
            outbox.add(token, last=reason is not None)
        elif script.made > made:
            outbox.replayed()
        if reason is None and seat.length + script.ready > sequence.capacity:
            reason = FinishReason.LENGTH
        if reason is not None:
            self._finish(sequence, reason)
        elif decision < SPEECH_VOCABULARY:
            script.take()  # the device has fed it back already
        else:
            self._stop(sequence, seat)

    def _stop(self, sequence: Sequence, seat: Seat) -> None:
        """The device has stopped: the script has other inputs, or waits for text."""
        seat.deciding = sequence.in_flight = False
        self._stopped = True

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        if not isinstance(error, CosyserveError):
            log.exception("a sentence could not go on")
            error = InternalFault(f"the speech-token engine failed: {type(error).__name__}")
        self._remove(sequence)
        sequence.outbox.fail(type(error)(error.message))

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        self._remove(sequence)
        sequence.outbox.finish(reason, sequence.script.made)


def state_row(rules: Rules, tokens: int, seat: Seat, capacity: int) -> list[int]:
    """The row of the state table with which a sequence begins to decide; see `state.Column`."""
    chooser = rules.chooser
    if not isinstance(chooser, RepetitionAwareChooser) or not isinstance(chooser.draw, SeededDraw):
        raise TypeError(f"the device cannot decide as {type(chooser).__name__} does")
    flags = Flag.FILL_FIRST if rules.fills_are_decided else Flag(0)
    for flag, reserved in ((Flag.MASK_END, END_OF_SPEECH), (Flag.MASK_RESERVED, RESERVED_SPEECH), (Flag.MASK_FILL, FILL)):
        flags |= flag if reserved in rules.masked else Flag(0)
    told = {
        Column.LENGTH: seat.length,
        Column.INPUT: seat.last,
        Column.ACTIVE: 1,
        Column.DECISIONS: rules.decisions,
        Column.TOKENS: tokens,
        Column.SHORTEST: rules.shortest,
        Column.LONGEST: rules.longest,
        Column.FLAGS: int(flags),
        Column.FILL_AT: -1 if rules.fill_at is None else rules.fill_at,
        Column.REPLAY: len(rules.replay),
        Column.SEED_LOW: _signed(chooser.draw.seed),
        Column.SEED_HIGH: _signed(chooser.draw.seed >> 32),
        Column.SENTENCE: _signed(chooser.draw.sentence),
        Column.CAPACITY: capacity,
    }
    return [told.get(Column(column), 0) if column < len(Column) else 0 for column in range(COLUMNS)]


def _signed(word: int) -> int:
    """The low 32 bits as a signed number."""
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >= 1 << 31 else word
