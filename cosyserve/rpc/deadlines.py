"""The deadline of the call that is being answered: it travels to the services that are called for
it, and work whose deadline has passed is dropped.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any, Final

import grpc

from cosyserve.errors import CallersDeadline
from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter

Context = grpc.aio.ServicerContext[Any, Any]
_UNTIL: Final[ContextVar[float | None]] = ContextVar("deadline", default=None)
"""On the monotonic clock."""
_REMEMBERED = 64
_SLACK_SECONDS = 0.1
"""A called service ends so much later: normally its caller hangs up first, with its own error."""
_CLOCKS_SECONDS = 0.1
"""Between the deadline of a caller and the same one here: the head of the call took so long to
arrive.
"""


@contextlib.contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """The current call has so much time while the block runs; None: any."""
    token = _UNTIL.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _UNTIL.reset(token)


def remaining() -> float | None:
    """Seconds until the deadline of the current call, at least 0; None without one."""
    until = _UNTIL.get()
    return None if until is None else max(until - time.monotonic(), 0.0)


def until() -> float | None:
    """The deadline of the current call on the monotonic clock; None without one."""
    return _UNTIL.get()


def for_stage() -> float | None:
    """The timeout of a call to another service on behalf of the current one."""
    left = remaining()
    return None if left is None else left + _SLACK_SECONDS


def require_time() -> None:
    """Raise CallersDeadline if the current call has no time left."""
    if remaining() == 0.0:
        raise CallersDeadline("the request's deadline has passed")


def at_deadline(context: Context) -> bool:
    """Whether a call that ends now ends because of its deadline. The clock of its caller may end it
    a little before ours.
    """
    left = context.time_remaining()
    return left is not None and left <= _CLOCKS_SECONDS


def dropped(queue: str) -> None:
    """Count a call that was dropped. queue: where it waited."""
    counter(names.DEADLINE_DROPPED).add(queue=queue)


class ShortestTime:
    """The shortest of the times that some work took lately. A call with less than half of that left
    would not see the first of its results.
    """

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=_REMEMBERED)

    def took(self, seconds: float) -> None:
        """The work was done in so many seconds."""
        if seconds > 0:
            self._latest.append(seconds)

    def require(self, queue: str) -> None:
        """Raise CallersDeadline if the current call surely ends before any result."""
        left, shortest = remaining(), min(self._latest, default=0.0)
        if left is not None and left < shortest / 2:
            raise CallersDeadline(
                f"the request's deadline is in {left:.3f} s; of the latest {len(self._latest)} requests the fastest "
                f"took {shortest:.3f} s to its first sound",
                queue=queue,
            )


@contextlib.asynccontextmanager
async def callers_deadline(context: Context) -> AsyncIterator[None]:
    """End the block at the deadline of the call: nothing is computed for a caller that is gone.
    Raises CallersDeadline then, also at once.
    """
    seconds = context.time_remaining()
    try:
        with deadline(seconds):
            require_time()
            async with asyncio.timeout(seconds) as limit:
                yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise CallersDeadline("the request's deadline has passed") from error
