"""Delivers finished audio as soon as it need not be held back any longer: when a step begins and,
in an engine that decodes one stream per step, during a step, because that may take longer than a
first chunk plays.
"""

import threading
from collections.abc import Callable, Sequence

from services.token2wav.scheduling.first_chunk_delay import FirstChunkDelay
from services.token2wav.scheduling.measurements import Clock
from services.token2wav.scheduling.next_step import ScheduledWork
from services.token2wav.scheduling.stream_slot import StreamSlot


class Delivery:
    """Guarded by `changed`: callers hold it, and the alarm acquires it. slots: all streams, a list
    that the batcher maintains. forget: called with a stream whose last audio was delivered.
    """

    def __init__(
        self,
        first_chunk_delay: FirstChunkDelay,
        clock: Clock,
        changed: threading.Condition,
        slots: Sequence[StreamSlot],
        forget: Callable[[StreamSlot], None],
    ) -> None:
        self._forget = forget
        self.first_chunk_delay, self._clock, self._changed, self._slots = first_chunk_delay, clock, changed, slots
        self._step = 0
        self._cancel_alarm: Callable[[], None] = lambda: None
        """Cancels the next check of the audio that is held back."""
        self._in_step = False

    def between_steps(self) -> float | None:
        """Deliver what may go; returns the seconds until more may follow, None if nothing is held
        back.
        """
        return self._release(())

    def begins(self, works: Sequence[ScheduledWork]) -> None:
        """Deliver what may go when this step begins, or before it ends. No works: streams are
        started before the next step.
        """
        if not works:
            self.between_steps()
            return
        self.first_chunk_delay.begins(works, self._clock.now())
        seconds = self._release(works)
        self._step, self._in_step = self._step + 1, True
        if works[0].slot.decoder.widest_step == 1:
            self._look_again_after(seconds)

    def ends(self) -> None:
        """The step has ended."""
        self._in_step = False
        self._cancel_alarm()
        self.first_chunk_delay.ends()

    def hand_out(self, slot: StreamSlot, now: float) -> None:
        """Deliver what is held of `slot`, after what is held of the preceding sentence."""
        if slot.follows is not None and slot.follows.held is not None and slot.follows.is_decoded:
            self.hand_out(slot.follows, now)
        hop = slot.hand_out(now)
        if hop.last:
            self._forget(slot)
        slot.deliver(hop)

    def _look_again_after(self, seconds: float | None) -> None:
        if seconds is None:
            return
        step = self._step

        def look_again() -> None:
            with self._changed:
                if self._in_step and self._step == step:
                    self._look_again_after(self._release(()))

        self._cancel_alarm = self._clock.after(seconds, look_again)

    def _release(self, works: Sequence[ScheduledWork]) -> float | None:
        now = self._clock.now()
        for slot in self.first_chunk_delay.over(self._slots, works, now):
            self.hand_out(slot, now)
        return self.first_chunk_delay.soonest(self._slots, now)
