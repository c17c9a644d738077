"""A virtual clock for many servers that come and go, all in one thread: a server that would wait
raises `Parked` instead, and is called again when something has changed.
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
        super().work(seconds)

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Raises Parked: the thread belongs to all servers, and none may block it."""
        raise Parked(seconds)

    def work(self, seconds: float) -> None:
        """No server works in this thread. Raises RuntimeError."""
        raise RuntimeError(
            f"work of {seconds:g} s was asked for; servers here begin work and are called when it is done"
        )


class StepTime:
    """The clock of one batcher. Its steps are settled when they end, and it reads the clock to know
    when a step began: until its decoder hands out the results, `began` is the time.
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
