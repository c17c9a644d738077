"""Hands out finished sound as soon as it need not be held any longer: when a step begins, and while
one is under way that takes one stream, which may take longer than a first piece plays."""

import threading
from collections.abc import Callable, Sequence

from services.token2wav.scheduling.clock import Clock
from services.token2wav.scheduling.first_chunk_delay import Holding
from services.token2wav.scheduling.next_step import Work
from services.token2wav.scheduling.stream_slot import Lane


class HandingOut:
    """Guarded by `changed`, which every method but an alarm is called with. lanes: all streams, as
    the batcher changes them. forget: called with a stream that has given its last sound."""

    def __init__(
        self,
        holding: Holding,
        clock: Clock,
        changed: threading.Condition,
        lanes: Sequence[Lane],
        forget: Callable[[Lane], None],
    ) -> None:
        self._forget = forget
        self.holding, self._clock, self._changed, self._lanes = holding, clock, changed, lanes
        self._step = 0
        self._forgo: Callable[[], None] = lambda: None
        """Prevents the next look at what is held."""
        self._under_way = False

    def between_steps(self) -> float | None:
        """Hand out what may go; seconds until more may follow, None: never."""
        return self._release(())

    def begins(self, works: Sequence[Work]) -> None:
        """Hand out what may go when this step begins, or before it ends. No works: streams are
        started before the next one.
        """
        if not works:
            self.between_steps()
            return
        self.holding.begins(works, self._clock.now())
        seconds = self._release(works)
        self._step, self._under_way = self._step + 1, True
        if works[0].lane.decoder.widest_step == 1:
            self._look_again_after(seconds)

    def ends(self) -> None:
        """No step is under way."""
        self._under_way = False
        self._forgo()
        self.holding.ends()

    def hand_out(self, lane: Lane, now: float) -> None:
        """Give what is held of `lane` to its reader, after what is held of the sentence in front of
        it.
        """
        if lane.follows is not None and lane.follows.held is not None and lane.follows.is_spoken:
            self.hand_out(lane.follows, now)
        hop = lane.hand_out(now)
        if hop.last:
            self._forget(lane)
        lane.deliver(hop)

    def _look_again_after(self, seconds: float | None) -> None:
        if seconds is None:
            return
        step = self._step

        def look() -> None:
            with self._changed:
                if self._under_way and self._step == step:
                    self._look_again_after(self._release(()))

        self._forgo = self._clock.after(seconds, look)

    def _release(self, works: Sequence[Work]) -> float | None:
        now = self._clock.now()
        for lane in self.holding.over(self._lanes, works, now):
            self.hand_out(lane, now)
        return self.holding.soonest(self._lanes, now)
