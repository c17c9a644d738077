"""The scheduler's source of time; tests and simulations substitute their own."""

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock in seconds."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    def after(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Schedule `call` in `seconds`, in any thread; it must not block. Returns a function that
        cancels it.
        """

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Sleep, holding `changed`, until it is notified or `seconds` have passed; None: until it
        is notified.
        """


class MonotonicClock:
    """The system's monotonic clock."""

    def now(self) -> float:
        """As `time.monotonic`."""
        return time.monotonic()

    def after(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Run `call` in a timer thread."""
        timer = threading.Timer(seconds, call)
        timer.daemon = True
        timer.start()
        return timer.cancel

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Sleep until notified or for `seconds`."""
        changed.wait(seconds)
