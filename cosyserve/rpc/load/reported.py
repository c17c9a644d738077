"""What a replica reports about its load, and the least busy of several replicas.

A report is old when it is read, and every caller has the same one: if all went to the replica that
looks idle, it would be the busiest before the next report. So a caller adds its own calls, which it
knows exactly, and expects of each other caller as many new ones as it has begun itself since the
report (docs/decisions/0031).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar


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
