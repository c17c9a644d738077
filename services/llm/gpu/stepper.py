"""The step runner of the fused engine, whose device samples: while one step runs, the host reads
the decisions of the previous one.

    prompt -> chunks -> state row -> [decode step, ...] -> reserved id, limit or last position

The script of a sequence receives each decision late and determines its effect. The device stops a
sequence by the same rules, so a finished sequence runs at most AHEAD more rows, whose results are
discarded. At most MOST_CHUNKS chunks run between two decode steps.
"""

import time
from collections import deque

from cosyserve.errors import Overloaded
from services.llm.engine.scheduler import Scheduler, Sequence, Step
from services.llm.engine.stepper import EngineStats, Remove, StepRunner
from services.llm.generation.outbox import non_finite
from services.llm.generation.request import FinishReason
from services.llm.gpu.layout import CHUNK, TILE, ReadDecisions, Runner, Stretch, tiles_of
from services.llm.gpu.slots import NON_FINITE, NOTHING, KvGrowth, KvSlot, KvSlotPool, pages_for, state_row

AHEAD = 1
"""Steps that are launched before the decisions of one are read."""
MOST_CHUNKS = 4
"""Most chunks between two decode steps while prompts wait. They take 5 ms, an eighth of the
duration of one token. For prompts that arrive together this shortens the time to first sound of the
last one, compared with a decode step after each chunk, and hardly delays the first.
"""


class FusedStepper(StepRunner):
    """Plans and settles the steps that `runner` runs on the device."""

    grows = True

    def __init__(self, runner: Runner, stats: EngineStats, remove: Remove) -> None:
        super().__init__(stats, remove)
        self._runner = runner
        self._pool = KvSlotPool(runner.slots, runner.pages)
        self._slots: dict[Sequence, KvSlot] = {}
        self._scheduled: list[Sequence] = []
        self._launched: deque[tuple[ReadDecisions, list[tuple[Sequence, KvSlot]], float]] = deque()
        """Steps whose decisions have not been read, their rows, and when they began, in seconds."""
        self._prefilling: list[tuple[Sequence, KvSlot]] = []
        """Sequences with a slot whose inputs have not all run."""
        self._decoding: list[tuple[Sequence, KvSlot]] = []
        """Sequences that decode in each step."""
        self._kv_growth = KvGrowth(runner.page_bytes)
        self._streams: list[Sequence] = []
        """Sequences with a place whose text arrives over time."""
        self._to_extend: list[Sequence] = []
        self._deadlocked: tuple[Sequence, float] | None = None
        """The last of the sequences that all wait for pages, so that none is released, and the
        retry hint for its caller.
        """
        self._stopped = False
        self._rescheduled = True

    def slot_bytes(self, capacity: int) -> int:
        """As `StepRunner.slot_bytes`: whole pages."""
        return pages_for(capacity) * self._runner.page_bytes

    def plan(self, scheduler: Scheduler) -> Step | None:
        """As `StepRunner.plan`. `decode` has all sequences with a place, including those in
        prefill.
        """
        self._grow(scheduler)  # before new sequences are admitted
        if scheduler.changed or self._stopped:
            scheduler.changed = self._stopped = False
            self._scheduled, self._rescheduled = scheduler.scheduled(), True
            self._streams = [sequence for sequence in self._scheduled if sequence.text_arrives]
            self._grow(scheduler)
        stuck = [
            sequence
            for sequence in self._streams
            if not sequence.closed and self._kv_growth.stuck(sequence, self._slots.get(sequence))
        ]
        deadlocked = (
            stuck and not self._launched and len(stuck) == sum(not sequence.closed for sequence in self._scheduled)
        )
        self._deadlocked = (stuck[-1], scheduler.limits.retry_after) if deadlocked else None
        return Step(None, self._scheduled) if self._scheduled or self._launched else None

    def run(self, step: Step) -> None:
        """Launch chunks and a decode step where there is something to run, then read the decisions
        of the previous step.
        """
        if self._deadlocked:
            self._give_up(*self._deadlocked)
        if self._rescheduled:
            self._rescheduled = False
            self._free()
            self._extend()
            for sequence in step.decode:
                if not sequence.in_flight and not sequence.closed:
                    self._begin(sequence)
            with_slot = [
                (sequence, slot)
                for sequence in step.decode
                if (slot := self._slots.get(sequence)) and not sequence.closed
            ]
            self._prefilling = [
                (sequence, slot) for sequence, slot in with_slot if sequence.in_flight and not slot.deciding
            ]
            self._decoding = [(sequence, slot) for sequence, slot in with_slot if slot.deciding]
        for _ in range(MOST_CHUNKS):
            if not self._prefilling:
                break
            self._prefill()
        if self._decoding:
            decisions = self._runner.step([slot.index for _, slot in self._decoding])
            self._launched.append((decisions, self._decoding, time.perf_counter()))
            self._stats.decode_steps += 1
        if len(self._launched) > (AHEAD if self._decoding else 0):
            self._settle_step(*self._launched.popleft())

    def close(self) -> None:
        self._runner.close()

    def _grow(self, scheduler: Scheduler) -> None:
        if grown := self._kv_growth.reserve(
            scheduler, ((sequence, self._slots.get(sequence)) for sequence in self._streams)
        ):
            self._to_extend += grown
            self._rescheduled = True

    def _extend(self) -> None:
        """Add the reserved pages to the sequences that have a slot."""
        for sequence in self._to_extend:
            slot = self._slots.get(sequence)
            if slot and not sequence.closed and (more := self._kv_growth.pages(sequence) - len(slot.pages)):
                first = len(slot.pages)
                self._runner.extend(slot.index, first, self._pool.extend(slot, more), min(sequence.capacity, slot.room))
        self._to_extend.clear()

    def _free(self) -> None:
        for sequence in [sequence for sequence in self._slots if sequence.closed]:
            self._pool.release(self._slots.pop(sequence))

    def _begin(self, sequence: Sequence) -> None:
        """Take the pending inputs of the script."""
        slot = self._slots.get(sequence)
        if (slot.length if slot else 0) + sequence.script.ready > sequence.capacity:
            self._finish(sequence, FinishReason.LENGTH)
            return
        if self._kv_growth.stuck(sequence, slot):
            return
        try:
            inputs = [self._runner.row_of(item.table, item.row) for item in sequence.script.take()]
        except Exception as error:
            self._fail([sequence], error)
            return
        if slot is None:
            slot = self._slots[sequence] = self._pool.take(self._kv_growth.pages(sequence))
            slot.started_ns, slot.positions = time.time_ns(), len(inputs)
            self._runner.assign(slot.index, slot.pages, sequence.script.rules.replay)
        elif len(inputs) > 1:
            self._stats.extends += 1
        slot.pending, slot.last = inputs[:-1], inputs[-1]
        sequence.in_flight = True

    def _prefill(self) -> None:
        """Launch one chunk of pending inputs, first come first served. Sequences without pending
        inputs begin to decode.
        """
        stretches, free = list[Stretch](), CHUNK // TILE
        for _, slot in self._prefilling:
            if part := slot.pending[: free * TILE]:
                stretches.append(Stretch(slot.index, slot.length, part, slot.pages))
                free -= tiles_of(len(part))
                slot.length += len(part)
                del slot.pending[: len(part)]
        if stretches:
            self._runner.prefill(stretches)
        ready = [(sequence, slot) for sequence, slot in self._prefilling if not slot.pending]
        self._prefilling = [(sequence, slot) for sequence, slot in self._prefilling if slot.pending]
        for sequence, slot in ready:
            try:
                row = state_row(
                    sequence.script.rules, sequence.script.token_count, slot, min(sequence.capacity, slot.room)
                )
            except Exception as error:
                self._fail([sequence], error)
                continue
            self._runner.activate(slot.index, row)
            slot.deciding = True
            self._decoding = [*self._decoding, (sequence, slot)]

    def _settle_step(self, read: ReadDecisions, rows: list[tuple[Sequence, KvSlot]], began: float) -> None:
        decisions = read()
        self._stats.longest_step_seconds = max(self._stats.longest_step_seconds, time.perf_counter() - began)
        for (sequence, slot), decision in zip(rows, decisions, strict=True):
            if sequence.closed or decision == NOTHING:
                continue
            try:
                self._settle(sequence, slot, decision)
            except Exception as error:
                self._fail([sequence], error)

    def _settle(self, sequence: Sequence, slot: KvSlot, decision: int) -> None:
        script, outbox = sequence.script, sequence.outbox
        if decision == NON_FINITE:
            raise non_finite(script)
        if slot.started_ns:
            outbox.prefilled(slot.started_ns, slot.positions)
            slot.started_ns = 0
            self._stats.prefills += 1
        else:
            self._stats.decode_rows += 1
        slot.length += 1
        outbox.decided(script, lambda: script.accept(decision))
        reason = script.finish
        if reason is None and slot.length + script.ready > sequence.capacity:
            reason = FinishReason.LENGTH
        if reason is not None:
            self._finish(sequence, reason)
        elif decision < script.speech.tokens and slot.length < slot.room:
            script.take()  # the device has already fed the token back
        else:
            self._stop(sequence, slot)

    def _stop(self, sequence: Sequence, slot: KvSlot) -> None:
        """Stop decoding a sequence: its script has other inputs, or waits for text, or its pages
        are full.
        """
        slot.deciding = sequence.in_flight = False
        self._stopped = True

    def _give_up(self, sequence: Sequence, retry_after: float) -> None:
        message = (
            "no memory is left for a sentence whose text arrives: "
            f"it has {self._kv_growth.pages(sequence)} of {self._runner.pages} pages"
        )
        self._remove(sequence)
        sequence.outbox.fail(Overloaded(message, retry_after=retry_after))
