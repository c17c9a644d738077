"""The steps of the engine on a device that decides by itself: while one step runs, the host reads
the answer of the step before.

    prompt -> chunks -> state row -> [decode step, decode step, ...] -> a reserved id, a limit or the last position

A sequence's script is told each decision behind time and stays the judge of what it means; the
device stops a sequence by the same rules, so one that is over runs at most AHEAD rows in vain, and
nothing of them is seen. Between two decode steps at most MOST_CHUNKS chunks run.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass

from cosyserve.errors import CosyserveError, InternalFault, NonFinite, Overloaded
from cosyserve.spec import SPEECH_VOCABULARY
from services.llm.engine.engine import Remove
from services.llm.engine.scheduler import Scheduler, Step
from services.llm.engine.sequence import Sequence
from services.llm.engine.stats import EngineStats
from services.llm.generation.request import FinishReason
from services.llm.gpu.kernels.state_table import NON_FINITE, NOTHING
from services.llm.gpu.kv_growth import Growth
from services.llm.gpu.kv_slots import Seat, Seats, pages_for
from services.llm.gpu.layout import CHUNK, TILE, Stretch, tiles_of
from services.llm.gpu.runner_protocol import Answer, Runner
from services.llm.gpu.state_row import state_row

log = logging.getLogger(__name__)
AHEAD = 1
"""Steps that are launched before the answer of one is read."""
MOST_CHUNKS = 4
"""Chunks between two decode steps while prompts wait. So many take 5 ms, an eighth of the time in
which one token is played. Of prompts that come together the last has its first sound sooner than
with a decode step of the others between any two chunks, and the first hardly later."""


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
        self._growth = Growth(runner.page_bytes)
        self._streams: list[Sequence] = []
        """Of those that have a place, whose text arrives."""
        self._grown: list[Sequence] = []
        self._hopeless: tuple[Sequence, float] | None = None
        """Waits for pages that nobody will give back, and what it is told about coming again."""
        self._stopped = False
        self._to_begin = True

    grows = True
    """As `Steps.grows`."""

    def slot_bytes(self, capacity: int) -> int:
        """As `Steps.slot_bytes`: whole pages."""
        return pages_for(capacity) * self._runner.page_bytes

    def plan(self, scheduler: Scheduler) -> Step | None:
        """As `Steps.plan`. Everyone who has a place is in `decode`, whatever runs of it next."""
        self._grow(scheduler)  # before others are let in
        if scheduler.changed or self._stopped:
            scheduler.changed = self._stopped = False
            self._placed, self._to_begin = scheduler.placed(), True
            self._streams = [sequence for sequence in self._placed if sequence.text_arrives]
            self._grow(scheduler)
        stuck = [
            sequence
            for sequence in self._streams
            if not sequence.closed and self._growth.stuck(sequence, self._seated.get(sequence))
        ]
        nobody_moves = (
            stuck and not self._launched and len(stuck) == sum(not sequence.closed for sequence in self._placed)
        )
        self._hopeless = (stuck[-1], scheduler.limits.retry_after) if nobody_moves else None
        return Step(None, self._placed) if self._placed or self._launched else None

    def run(self, step: Step) -> None:
        """Launch chunks and a decode step, as far as there is something to run, then read the
        answer that is due.
        """
        if self._hopeless:
            self._give_up(*self._hopeless)
        if self._to_begin:
            self._to_begin = False
            self._free()
            self._extend()
            for sequence in step.decode:
                if not sequence.in_flight and not sequence.closed:
                    self._begin(sequence)
            seated = [
                (sequence, seat)
                for sequence in step.decode
                if (seat := self._seated.get(sequence)) and not sequence.closed
            ]
            self._filling = [(sequence, seat) for sequence, seat in seated if sequence.in_flight and not seat.deciding]
            self._rows = [(sequence, seat) for sequence, seat in seated if seat.deciding]
        for _ in range(MOST_CHUNKS):
            if not self._filling:
                break
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

    def _grow(self, scheduler: Scheduler) -> None:
        if grown := self._growth.reserve(
            scheduler, ((sequence, self._seated.get(sequence)) for sequence in self._streams)
        ):
            self._grown += grown
            self._to_begin = True

    def _extend(self) -> None:
        """Give those that have a seat the pages that are kept for them."""
        for sequence in self._grown:
            seat = self._seated.get(sequence)
            if seat and not sequence.closed and (more := self._growth.pages(sequence) - len(seat.pages)):
                first = len(seat.pages)
                self._runner.extend(seat.slot, first, self._seats.extend(seat, more), min(sequence.capacity, seat.room))
        self._grown.clear()

    def _free(self) -> None:
        for sequence in [sequence for sequence in self._seated if sequence.closed]:
            self._seats.give_back(self._seated.pop(sequence))

    def _begin(self, sequence: Sequence) -> None:
        """Take what the script has to run."""
        seat = self._seated.get(sequence)
        if (seat.length if seat else 0) + sequence.script.ready > sequence.capacity:
            self._finish(sequence, FinishReason.LENGTH)
            return
        if self._growth.stuck(sequence, seat):
            return
        try:
            inputs = [self._runner.row_of(item.table, item.row) for item in sequence.script.take()]
        except Exception as error:
            self._fail(sequence, error)
            return
        if seat is None:
            seat = self._seated[sequence] = self._seats.take(self._growth.pages(sequence))
            seat.started_ns, seat.positions = time.time_ns(), len(inputs)
            self._runner.seat(seat.slot, seat.pages, sequence.script.rules.replay)
        elif len(inputs) > 1:
            self._stats.extends += 1
        seat.pending, seat.last = inputs[:-1], inputs[-1]
        sequence.in_flight = True

    def _prefill(self) -> None:
        """One chunk for those whose inputs are waiting, first come first served; who has none left
        begins to decide.
        """
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
                row = state_row(sequence.script.rules, sequence.script.made, seat, min(sequence.capacity, seat.room))
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
        elif decision < SPEECH_VOCABULARY and seat.length < seat.room:
            script.take()  # the device has fed it back already
        else:
            self._stop(sequence, seat)

    def _stop(self, sequence: Sequence, seat: Seat) -> None:
        """The device has stopped: the script has other inputs, or waits for text, or the pages are
        full.
        """
        seat.deciding = sequence.in_flight = False
        self._stopped = True

    def _give_up(self, sequence: Sequence, retry_after: float) -> None:
        told = f"no memory is left for a sentence whose text arrives: it has {self._growth.pages(sequence)} of {self._runner.pages} pages"
        self._remove(sequence)
        sequence.outbox.fail(Overloaded(told, retry_after=retry_after))

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        if not isinstance(error, CosyserveError):
            log.exception("a sentence could not go on")
            error = InternalFault(f"the speech-token engine failed: {type(error).__name__}")
        self._remove(sequence)
        sequence.outbox.fail(type(error)(error.message))

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        self._remove(sequence)
        sequence.outbox.finish(reason, sequence.script.made)
