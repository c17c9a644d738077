"""A clock that costs no time: events run in order, and what waits or works for a while lets those
happen that lie in between.
"""

import heapq
import itertools
import threading
from collections.abc import Callable


class VirtualClock:
    """A `services.token2wav.scheduling.measurements.Clock`.
    Everything happens in the thread that waits or works. on_end: called when nothing can
    happen any more although a coroutine waits."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._on_end = on_end

    def now(self) -> float:
        """Seconds since the start."""
        return self._now

    def after(self, seconds: float, event: Callable[[], None]) -> Callable[[], None]:
        """Let `event` happen in `seconds`; those of one moment happen in the order in which they
        were asked for. Returns what prevents it."""
        number = next(self._numbers)
        heapq.heappush(self._events, (self._now + seconds, number, event))
        return lambda: self._forget(number)

    def _forget(self, number: int) -> None:
        left = [event for event in self._events if event[1] != number]
        if len(left) < len(self._events):
            heapq.heapify(left)
            self._events[:] = left

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Until the next event has happened or `seconds` are over."""
        if self._events and (seconds is None or self._events[0][0] <= self._now + seconds):
            self._happen()
        elif seconds is None:
            self._on_end()
        else:
            self._now += seconds

    def work(self, seconds: float) -> None:
        """Be busy for `seconds`; events that are due in this time happen."""
        end = self._now + seconds
        while self._events and self._events[0][0] <= end:
            self._happen()
        self._now = end

    def _happen(self) -> None:
        at, _, event = heapq.heappop(self._events)
        self._now = max(self._now, at)
        event()
