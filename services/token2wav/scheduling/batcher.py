"""One thread owns the engine and runs the pending work of all streams.

A new stream waits for at most the step in progress. Which streams share a step, and how many,
follows from when their players run dry (`next_step`). A first chunk may be held back
(`first_chunk_delay`). A sentence of the offline profile is one long step and runs when no other
stream has work. The thread sleeps until tokens, a reader or a stream wakes it.
"""

import copy
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyserve.engines.engine_load import EngineLoad
from cosyserve.errors import CallersDeadline, CosyserveError, InternalFault, Overloaded, Unavailable
from services.token2wav.decoders.interface import Decoded, Decoder, HasPages, takes_prompt_whole
from services.token2wav.inputs.chunking import schedule
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.scheduling.first_chunk_delay import Delivery, FirstChunkDelay
from services.token2wav.scheduling.hop_audio import Deliver
from services.token2wav.scheduling.measurements import Clock, MonotonicClock, StepCosts, TokenPace, sooner
from services.token2wav.scheduling.memory_budget import Budget, Limits, held_bytes
from services.token2wav.scheduling.neighbours import neighbours
from services.token2wav.scheduling.next_step import NextStep, ScheduledWork, is_late
from services.token2wav.scheduling.occupancy import Occupancy, watch
from services.token2wav.scheduling.room_forecast import promised_to
from services.token2wav.scheduling.step_runner import EngineHealth, OnFault, StepRunner
from services.token2wav.scheduling.stream_slot import StreamSlot

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stats:
    """streams, state_bytes: current values. The others since the start; longest_step_seconds bounds
    how long a cancelled stream may still hold its memory.
    """

    streams: int
    state_bytes: int
    peak_state_bytes: int
    steps: int
    longest_step_seconds: float


class Batcher:
    """All methods but `close` return immediately and may be called from the event loop.

    on_fault: called when the engine is broken, that is, when its thread has died or three steps in
    a row failed with an error that is not a CosyserveError. hold_seconds: see `FirstChunkDelay`.
    clock: source of time; a caller that passes one also calls `serve` in a thread of its own.
    """

    def __init__(
        self,
        decoders: Mapping[Profile, Decoder[Any]],
        limits: Limits,
        on_fault: OnFault | None = None,
        *,
        hold_seconds: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._decoders = decoders
        self._clock: Clock = clock or MonotonicClock()
        self.load, self._costs, self._pace = EngineLoad(), StepCosts(), TokenPace()
        batches = any(each.widest_step > 1 for each in decoders.values())
        first_chunk_delay = FirstChunkDelay(hold_seconds, self._costs, self._pace, batches=batches)
        self._budget = Budget(limits)
        self._next_step = NextStep(self._costs, self._budget, batches=batches)
        self._health = EngineHealth(on_fault)
        self._runner = StepRunner(self._health, self._costs, self.load, self._clock)
        self._changed = threading.Condition()
        self._slots: list[StreamSlot] = []
        self._delivery = Delivery(first_chunk_delay, self._clock, self._changed, self._slots, self._forget)
        self._in_step: set[StreamSlot] = set()
        self._closing = False
        self._limits = limits
        watch(self)
        engine = threading.Thread(target=self.serve, name="token2wav-engine", daemon=True)
        self._thread = engine if clock is None else None
        if self._thread is not None:
            self._thread.start()

    def open(self, sentence: Sentence, deliver: Deliver) -> StreamSlot:
        """Admit a stream; `deliver` receives its finished hops and, at the end, the error if there
        is one.

        Raises Overloaded if all streams are taken or its prompt and reserve do not fit into the
        state budget, Unavailable while closing.
        """
        decoder = self._decoders[sentence.profile]
        prompt = decoder.start_bytes(sentence.voice)
        needed = self._budget.needed(prompt, decoder)
        prompt_tokens, whole = len(sentence.voice.tokens), takes_prompt_whole(decoder)
        cuts = schedule(sentence.profile, prompt_tokens, sentence.hops, whole_prompt=whole)
        with self._changed:
            if self._closing:
                raise Unavailable("the decoder is closing")
            ahead, behind = neighbours(sentence, self._slots)
            now, follows = self._clock.now(), ahead is not None or behind is not None
            waits = promised_to(sentence)
            self._budget.check_room(self._slots, needed, follows=follows, now=now, utterance=waits)
            if not follows:
                self._budget.room.opened(waits)
            slot = StreamSlot(sentence, decoder, cuts, deliver, reserved=needed, bytes=prompt, load=self.load)
            slot.opens(now, ahead, behind)
            self._slots.append(slot)
            self._changed.notify()
        return slot

    def takes_fewer_steps(self, profile: Profile) -> bool:
        """Whether a sentence of this profile may have fewer than ten Euler steps."""
        return self._decoders[profile].takes_fewer_steps

    def feed(self, slot: StreamSlot, tokens: NDArray[np.int64]) -> None:
        """Append generated tokens, int64 [n] at 25 Hz, already checked. Has no effect on a stream
        that is over.
        """
        with self._changed:
            now = self._clock.now()
            if slot.append(tokens) and not (slot.over or slot.cancelled):
                self._next_step.first_hops.came(slot, now)
            if slot.tokens_at is not None:
                self._pace.add(len(tokens), now - slot.tokens_at)
            slot.tokens_at = now
            self._changed.notify()

    def finish(self, slot: StreamSlot) -> None:
        """Declare its tokens complete."""
        with self._changed:
            slot.finish()
            self._budget.complete(len(slot.tokens))
            self._changed.notify()

    def taken(self, slot: StreamSlot) -> None:
        """The reader has received one more of the delivered hops, so that the next may begin."""
        with self._changed:
            slot.unread_hops = max(slot.unread_hops - 1, 0)
            self._changed.notify()

    def cancel(self, slot: StreamSlot) -> None:
        """Stop and forget a stream: immediately or, if it is being computed, before its next Euler
        step.
        """
        with self._changed:
            slot.cancelled = True
            if slot.state is not None:
                slot.state.cancel()
            if slot not in self._in_step:
                self._forget(slot)
            self._changed.notify()

    def stats(self) -> Stats:
        """Current counts and bytes, and seconds since the start."""
        with self._changed:
            runner = self._runner
            held = held_bytes(self._slots)
            return Stats(len(self._slots), held, self._budget.peak, runner.steps, runner.longest_seconds)

    def occupancy(self) -> Occupancy:
        """What the metrics say about the current streams."""
        pages = next((each.pages for each in self._decoders.values() if isinstance(each, HasPages)), None)
        with self._changed:
            return Occupancy.of(self._slots, self._in_step, self._limits.max_streams, pages, self._clock.now())

    def close(self) -> None:
        """End every stream with Unavailable, and the thread after its current step. Blocks until
        then.
        """
        with self._changed:
            self._closing = True
            for slot in self._slots:
                if slot.state is not None:
                    slot.state.cancel()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def serve(self) -> None:
        """Main loop of the engine's thread; returns after `close`."""
        error: CosyserveError = Unavailable("the decoder is closing")
        try:
            while self._run_next():
                pass
        except BaseException as cause:
            error = InternalFault("the decoder's thread has ended; the log has the details")
            log.exception("the decoder's thread failed")
            self._health.broke(f"the decoder's thread ended with {type(cause).__name__}: {cause}")
        finally:
            with self._changed:
                self._closing = True
                for slot in list(self._slots):
                    self._end(slot, error)

    def _run_next(self) -> bool:
        """Run one step; False when closing. The frame of this call must end with the step, because
        it refers to the states of streams that may be over.
        """
        if (works := self._next()) is not None:
            self._step(works)
        return works is not None

    def _next(self) -> list[ScheduledWork] | None:
        """The next step, after starting new streams. Waits for work; None when closing."""
        while True:
            with self._changed:
                for slot in self._in_step:
                    if slot.cancelled:
                        self._forget(slot)
                self._in_step.clear()
                self._delivery.ends()
                while not self._closing:
                    self._drop_late()
                    new = [slot for slot in self._slots if slot.state is None]
                    due = [] if new else self._next_step.of(self._slots, self._clock.now())
                    if new or due:
                        break
                    self._clock.wait(self._changed, sooner(self._delivery.release(), self._next_step.wait_seconds))
                if self._closing:
                    return None
                self._in_step.update(new or [work.slot for work in due])
                self._delivery.begins(due)
            if due:
                return due
            for slot in new:
                self._start(slot)

    def _drop_late(self) -> None:
        """End the streams whose callers have given up, or will before another step is over."""
        now = self._clock.now()
        for slot in [slot for slot in self._slots if is_late(slot, now, self._runner.shortest_seconds)]:
            queue = "token2wav.step" if slot.is_playing else "token2wav.waiting"
            self._end(slot, CallersDeadline("the sentence was not decoded in time for its caller", queue=queue))

    def _start(self, slot: StreamSlot) -> None:
        state = self._runner.start(slot)
        if isinstance(state, CosyserveError):
            self._end(slot, state)
            return
        with self._changed:
            slot.state = state
            self._budget.recount(self._slots)

    def _step(self, works: list[ScheduledWork]) -> None:
        outcome = self._runner.run(works)
        if isinstance(outcome, CosyserveError):
            for work in works:
                self._end(work.slot, outcome)
            return
        results, now = outcome
        with self._changed:
            self._budget.recount(self._slots)
        for work, decoded in zip(works, results, strict=True):
            self._keep(work, decoded, now)

    def _keep(self, work: ScheduledWork, decoded: Decoded | CosyserveError | None, now: float) -> None:
        """Store a stream's result of a step. A finished hop is delivered immediately unless it may
        be held; then the next iteration decides.
        """
        slot = work.slot
        if isinstance(decoded, CosyserveError):
            self._end(slot, decoded)
            return
        with self._changed:
            if slot.cancelled or decoded is None:
                return
            slot.last_step = self._runner.steps
            if not slot.add(decoded, work.step_input.until, now) or self._delivery.first_chunk_delay.may_hold(slot):
                return
            self._delivery.hand_out(slot, now)

    def _end(self, slot: StreamSlot, error: CosyserveError) -> None:
        with self._changed:
            self._forget(slot)
            if isinstance(error, Overloaded):
                # The engine had no room: there is some when another stream has ended. The streams
                # of a step fail with one error, and each has a time of its own.
                error = copy.copy(error)
                error.retry_after = self._budget.until_one_ends(
                    self._slots, self._clock.now(), promised_to(slot.sentence)
                )
        if not slot.cancelled:
            slot.deliver(error)

    def _forget(self, slot: StreamSlot) -> None:
        if slot in self._slots:
            self._budget.left(slot, self._clock.now())
        slot.state, slot.held, slot.over = None, None, True
        slot.decoded_parts.clear()
        if slot in self._slots:
            self._slots.remove(slot)
            slot.hang_up.release()
