"""Hands out finished sound as soon as it need not be held any longer: when a step begins, and while
one is under way that takes one stream, which may take longer than a first piece plays."""

import threading
from collections.abc import Callable, Sequence

from services.token2wav.scheduling.clock import Clock
from services.token2wav.scheduling.first_chunk_delay import FirstChunkDelay
from services.token2wav.scheduling.next_step import ScheduledWork
from services.token2wav.scheduling.stream_slot import StreamSlot


class Delivery:
    """Guarded by `changed`, which every method but an alarm is called with. slots: all streams, as
    the batcher changes them. forget: called with a stream that has given its last sound."""

    def __init__(
        self,
        holding: FirstChunkDelay,
        clock: Clock,
        changed: threading.Condition,
        slots: Sequence[StreamSlot],
        forget: Callable[[StreamSlot], None],
    ) -> None:
        self._forget = forget
        self.holding, self._clock, self._changed, self._slots = holding, clock, changed, slots
        self._step = 0
        self._forgo: Callable[[], None] = lambda: None
        """Prevents the next look at what is held."""
        self._under_way = False

    def between_steps(self) -> float | None:
        """Hand out what may go; seconds until more may follow, None: never."""
        return self._release(())

    def begins(self, works: Sequence[ScheduledWork]) -> None:
        """Hand out what may go when this step begins, or before it ends. No works: streams are
        started before the next one.
        """
        if not works:
            self.between_steps()
            return
        self.holding.begins(works, self._clock.now())
        seconds = self._release(works)
        self._step, self._under_way = self._step + 1, True
        if works[0].slot.decoder.widest_step == 1:
            self._look_again_after(seconds)

    def ends(self) -> None:
        """No step is under way."""
        self._under_way = False
        self._forgo()
        self.holding.ends()

    def hand_out(self, slot: StreamSlot, now: float) -> None:
        """Give what is held of `slot` to its reader, after what is held of the sentence in front of
        it.
        """
        if slot.follows is not None and slot.follows.held is not None and slot.follows.is_spoken:
            self.hand_out(slot.follows, now)
        hop = slot.hand_out(now)
        if hop.last:
            self._forget(slot)
        slot.deliver(hop)

    def _look_again_after(self, seconds: float | None) -> None:
        if seconds is None:
            return
        step = self._step

        def look() -> None:
            with self._changed:
                if self._under_way and self._step == step:
                    self._look_again_after(self._release(()))

        self._forgo = self._clock.after(seconds, look)

    def _release(self, works: Sequence[ScheduledWork]) -> float | None:
        now = self._clock.now()
        for slot in self.holding.over(self._slots, works, now):
            self.hand_out(slot, now)
        return self.holding.soonest(self._slots, now)
