"""A virtual clock for many servers that come and go, all in one thread: what would wait is left,
and called again when something has changed.
"""

import threading
from collections.abc import Callable

from tools.capacity.timing.clock import VirtualClock


class Parked(Exception):
    """A server has nothing to do.

    seconds: until it wants to look again if nothing happens; None: it waits until something does.
    """

    def __init__(self, seconds: float | None) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class PodClock(VirtualClock):
    """A `services.token2wav.scheduling.measurements.Clock`. Events of one moment follow each other
    in the order in which they were asked for, so a run can be repeated.
    """

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def run(self, seconds: float) -> None:
        """Let everything happen that lies within the next `seconds`."""
        end = self._now + seconds
        while (at := self._next_at) is not None and at <= end:
            self._happen()
        self._now = end

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Leave the caller. Raises Parked."""
        raise Parked(seconds)

    def work(self, seconds: float) -> None:
        """No server works in this thread. Raises RuntimeError."""
        raise RuntimeError(
            f"work of {seconds:g} s was asked for; servers here begin work and are called when it is done"
        )


class StepTime:
    """The clock of one batcher: while a step is settled that began earlier, the first look at the
    clock gives when it began.
    """

    def __init__(self, clock: PodClock) -> None:
        self._clock = clock
        self.began: float | None = None

    def now(self) -> float:
        """Seconds since the start."""
        return self._clock.now() if self.began is None else self.began

    def after(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """As `VirtualClock.after`."""
        return self._clock.after(seconds, call)

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """As `PodClock.wait`."""
        self._clock.wait(changed, seconds)
