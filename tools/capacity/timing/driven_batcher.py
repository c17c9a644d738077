"""The batcher that serves, driven by events of a virtual clock in place of a thread: it plans a
step, which takes its time, and is then settled.
"""

from collections.abc import Callable
from typing import cast

from services.token2wav.decoders.interface import StepInput
from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.scheduling.next_step import ScheduledWork
from tools.capacity.timing.paged_decoder import PagedTimes, TimedPagedDecoder
from tools.capacity.timing.pod_clock import Parked, PodClock, StepTime


class DrivenBatcher:
    """batcher: to open, feed and cancel streams; `wake` has to be called after each of these."""

    def __init__(
        self, clock: PodClock, decoder: TimedPagedDecoder, limits: Limits, broke: Callable[[str], None]
    ) -> None:
        self._clock, self._decoder, self._time = clock, decoder, StepTime(clock)
        self.batcher = Batcher({Profile.CONTINUOUS: decoder}, limits, broke, clock=self._time)
        self._busy = self._over = False
        self._forget_look: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """Something has changed; a step that runs is not disturbed."""
        if self._busy or self._over:
            return
        self._forget_look()
        try:
            # What `Batcher.serve` does, but for waiting: that is `Parked`.
            works = self.batcher._next()
        except Parked as parked:
            if parked.seconds is not None:
                self._forget_look = self._clock.after(parked.seconds, self.wake)
            return
        if works is None:
            self._over = True
            return
        self._busy = True
        began, seconds = (
            self._clock.now(),
            self._decoder.begin([cast("StepInput[PagedTimes]", work.step_input) for work in works]),
        )
        self._clock.after(seconds, lambda: self._settle(works, began))

    def _settle(self, works: list[ScheduledWork], began: float) -> None:
        if self._over:
            return
        self._time.began = began
        self._decoder.ended = self._ended
        self.batcher._step(works)
        self._busy = False
        self.wake()

    def _ended(self) -> None:
        """The decoder hands the results out: from here on it is now."""
        self._time.began = None

    def stop(self) -> None:
        """The process is gone, whatever it was doing."""
        self._over = True
        self._forget_look()
        self._decoder.abandon()
