"""How long a caller that has hung up still costs something: from the moment at which the service
notices it until all that is held for the call is free.
"""

import threading
import time
from contextvars import ContextVar

from opentelemetry import context

from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter, histogram

_CANCELS, _SECONDS = counter(names.CANCELS), histogram(names.CANCEL_SECONDS)


class HangUp:
    """Of one call. What holds memory or work for it that outlives the call itself, such as the
    thread of an engine, calls `hold` in the task of the call, and `release` in any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context = context.get_current()
        self._held = 1
        self._noticed: float | None = None

    def notice(self) -> None:
        """The caller has hung up."""
        if self._noticed is None:
            self._noticed = time.monotonic()

    def hold(self) -> "HangUp":
        """Something more is held for the call; returns itself."""
        with self._lock:
            self._held += 1
        return self

    def release(self) -> None:
        """It is free; the first holder is the call itself. Once for each."""
        with self._lock:
            self._held -= 1
            over = not self._held
        if over and self._noticed is not None:
            _CANCELS.add()
            _SECONDS.record(time.monotonic() - self._noticed, self._context)


_OF_CALL: ContextVar[HangUp] = ContextVar("hang-up of the call")


def begin() -> HangUp:
    """Of the call that the current task begins to answer."""
    hang_up = HangUp()
    _OF_CALL.set(hang_up)
    return hang_up


def of_call() -> HangUp:
    """Of the current call; outside of one, of a call that no caller hangs up on."""
    return _OF_CALL.get(None) or HangUp()
