"""Calls in progress at a service, what a replica reports about them, and the least busy of several
replicas.

A caller says who it is in its user agent, a channel option: it is sent with every call, passes
proxies, and survives a new connection.

A report is old when it is read, and every caller has the same one: if all went to the replica that
looks idle, it would be the busiest before the next report. So a caller adds its own calls, which it
knows exactly, and expects of each other caller as many new ones as it has begun itself since the
report (docs/decisions/0031).
"""

import contextlib
import random
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, TypeVar

from cosyserve.tasks import Changes

_AGENT: Final = "cosyserve-caller/"


@dataclass(frozen=True)
class Reported:
    """The load of a replica at the time of its report."""

    other_calls: float
    """Calls in progress there that other callers make."""
    capacity: float = 0.0
    """Calls that it serves at once; 0: unknown."""
    callers: int = 1
    """Processes that follow its load, this one among them."""
    begun: int = 0
    """Calls that this process had begun there before the report came."""


@dataclass(eq=False)
class Balanced:
    """What the choice knows of a replica."""

    calls: int = 0
    """Calls in flight from this process."""
    begun: int = 0
    """Calls that this process has begun there."""
    reported: Reported | None = None
    """None: it has not reported, or a release that does not."""


B = TypeVar("B", bound=Balanced)


def least_busy(able: Sequence[B]) -> B | None:
    """The one whose share of calls would be the smallest with one more; None of none.

    Of equally busy ones it is the first, or any if there are other callers, which would all take
    the first. One that reports nothing is taken to have as many calls of others as the rest have on
    average; if none reports, the own calls decide.
    """
    reports = [each.reported for each in able if each.reported is not None]
    if len(able) < 2 or not reports:
        return min(able, key=lambda each: each.calls, default=None)
    capacity = fmean([report.capacity for report in reports if report.capacity > 0] or [1.0])
    usual = fmean(_expected(each, each.reported) for each in able if each.reported is not None)
    callers = max(report.callers for report in reports)

    def share(each: B) -> float:
        report = each.reported
        others = usual if report is None else _expected(each, report)
        return (others + each.calls + 1) / ((report.capacity if report is not None else 0.0) or capacity)

    if callers < 2:
        return min(able, key=share)
    return min(able, key=lambda each: (share(each), random.random()))  # noqa: S311 - no secret depends on it


def _expected(each: Balanced, report: Reported) -> float:
    """Calls of others now: they have begun new ones as this process has."""
    return report.other_calls + (report.callers - 1) * max(0, each.begun - report.begun)


def new_caller() -> tuple[str, str]:
    """Channel option of a caller that differs from all others."""
    return "grpc.primary_user_agent", f"{_AGENT}{secrets.token_hex(8)}"


def caller_of(metadata: Any) -> str:
    """The caller that the metadata of a call name; empty: one that does not say."""
    for key, value in metadata or ():
        if key == "user-agent":
            first = str(value).partition(" ")[0]
            return first if first.startswith(_AGENT) else ""
    return ""


class CallCounts:
    """Used inside one event loop; its size is bounded by the number of calls."""

    def __init__(self) -> None:
        self.changes = Changes()
        """Notified when a call begins or ends."""
        self._own: Counter[str] = Counter()
        self._elsewhere: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Calls in progress, in all processes of the service."""
        return self._own.total() + self._elsewhere.total()

    def others_than(self, caller: str) -> int:
        """Calls in progress of other callers."""
        mine = self._own[caller] + self._elsewhere[caller] if caller else 0
        return self.total - mine

    def own(self) -> dict[str, int]:
        """Calls in progress in this process, by caller; those who do not say who they are together,
        under no name.
        """
        return dict(self._own)

    def count_elsewhere(self, calls: Mapping[str, int]) -> None:
        """Calls in progress, by caller, in the other processes of the same service."""
        self._elsewhere = Counter(calls)
        self.changes.notify()

    @contextlib.contextmanager
    def counted(self, caller: str) -> Iterator[None]:
        """A call of `caller` is in progress while the block runs."""
        self._own[caller] += 1
        self.changes.notify()
        try:
            yield
        finally:
            self._own[caller] -= 1
            if not self._own[caller]:
                del self._own[caller]
            self.changes.notify()
