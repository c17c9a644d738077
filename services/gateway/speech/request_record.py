"""What is counted of each request: an HTTP request, or one utterance of a WebSocket or of Wyoming.
Handlers find the record of theirs in the context of their task.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

from starlette.websockets import WebSocketDisconnect

from cosyserve.errors import CosyserveError, Overloaded
from cosyserve.metrics import names
from cosyserve.metrics.hang_up import HangUp
from cosyserve.metrics.instruments import counter, gauge, histogram

_FIRST_BYTE, _REQUESTS = histogram(names.FIRST_BYTE), counter(names.REQUESTS)
_REFUSALS, _CANCELS = counter(names.REFUSALS), counter(names.CANCELS)
_LIMITS = {
    "too_many": "connections",
    "too_many_bodies": "body",
    "body_too_large": "body",
    "head_too_large": "body",
}
"""By the code of the failure."""
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ALREADY_EXISTS",
    413: "RESOURCE_EXHAUSTED",
    415: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    431: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""gRPC's names of HTTP statuses; others are UNKNOWN below 500 and INTERNAL from there on."""


@dataclass(eq=False)
class ActiveRequests:
    """Of this process. limit: how many are served at once."""

    active: int = 0
    limit: int = 0

    def __post_init__(self) -> None:
        gauge(names.STREAMS_ACTIVE).watch(self, lambda requests: requests.active)
        gauge(names.STREAMS_LIMIT).watch(self, lambda requests: requests.limit)


REQUESTS = ActiveRequests()


@dataclass
class RequestRecord:
    """api: which one is asked, one of `names.METHODS` or "other"."""

    api: str = "other"
    begun: float = field(default_factory=time.monotonic)
    status: str = ""
    """Name of its gRPC status; empty: not known from within."""
    limit: str = ""
    speaks: bool = False
    """Whether it got audio of the speech service."""
    hang_up: HangUp = field(default_factory=HangUp)

    def answered(self, status: int, code: str, error: Exception | None = None) -> None:
        """The answer is a failure, of this HTTP status and code. error: its cause."""
        self.status = error.code.name if isinstance(error, CosyserveError) else status_name(status)
        self.limit = error.limit if isinstance(error, Overloaded) else _LIMITS.get(code, "")

    def hung_up(self) -> None:
        """The caller has hung up."""
        self.status = "CANCELLED"
        self.hang_up.notice()

    def heard(self) -> None:
        """The first byte of its audio is about to be sent."""
        _FIRST_BYTE.record(time.monotonic() - self.begun, method=self.api)

    def count(self) -> None:
        """It is over."""
        self.hang_up.release()
        _REQUESTS.add(1, method=self.api, status=self.status or "OK")
        if self.limit:
            _REFUSALS.add(1, limit=self.limit)


RECORD: ContextVar[RequestRecord] = ContextVar("record of the request")


def current_record() -> RequestRecord:
    """Of the current request; outside of one, one that is not counted."""
    return RECORD.get(None) or RequestRecord()


def status_name(status: int) -> str:
    """The name of the gRPC status that an HTTP status means."""
    return "OK" if status < 400 else _STATUSES.get(status, "UNKNOWN" if status < 500 else "INTERNAL")


@contextlib.contextmanager
def noting(record: RequestRecord) -> Iterator[None]:
    """The record is that of the current task while the block runs."""
    token = RECORD.set(record)
    try:
        yield
    finally:
        RECORD.reset(token)


@contextlib.contextmanager
def active(record: RequestRecord) -> Iterator[None]:
    """As `noting`, and the request is served while the block runs."""
    REQUESTS.active += 1
    try:
        with noting(record):
            yield
    finally:
        REQUESTS.active -= 1


class CountedUtterance:
    """One utterance of a connection on which several are spoken."""

    def __init__(self, record: RequestRecord) -> None:
        self._record, self._heard = record, False

    def sends(self) -> None:
        """A piece of its audio is about to be sent."""
        if not self._heard:
            self._heard = True
            self._record.heard()


@contextlib.contextmanager
def utterance_of(api: str) -> Iterator[CountedUtterance]:
    """Counts one utterance, which is spoken while the block runs."""
    record = RequestRecord(api)
    try:
        with active(record):
            yield CountedUtterance(record)
    except (asyncio.CancelledError, WebSocketDisconnect, GeneratorExit):
        record.status = "CANCELLED"
        # When the caller hung up is not known here, so that it is counted without its time.
        _CANCELS.add()
        raise
    except CosyserveError as error:
        record.status = error.code.name
        record.limit = error.limit if isinstance(error, Overloaded) else ""
        raise
    except BaseException:
        record.status = "INTERNAL"
        raise
    finally:
        record.count()
