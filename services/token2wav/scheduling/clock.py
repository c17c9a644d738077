"""The time that scheduling goes by; tests and simulations put in one of their own."""

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Seconds that only grow."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    def after(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Let `call` happen in `seconds`, in whatever thread; it must not block. Returns what
        prevents that.
        """

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Sleep, `changed` held, until it is notified or `seconds` are over; None: until it is
        notified.
        """


class MonotonicClock:
    """The machine's."""

    def now(self) -> float:
        """As `time.monotonic`."""
        return time.monotonic()

    def after(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """In a thread of its own."""
        timer = threading.Timer(seconds, call)
        timer.daemon = True
        timer.start()
        return timer.cancel

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Sleep until notified or for `seconds`."""
        changed.wait(seconds)
