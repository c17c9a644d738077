"""A circuit breaker for each replica: one whose calls fail although its health says SERVING gets no
calls for a while, then a single one as a probe.

    closed -> open (failures in a row, or their share) -> half-open (one probe) -> closed or open

Calls that were under way together when a replica went away count as one failure: its health watch
deals with that. The breakers never take the last replica of a stage away, unless it has failed
twice as often in a row as opens a breaker.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from cosyserve import errors

log = logging.getLogger(__name__)
_HOPELESS_FACTOR = 2


class Verdict(Enum):
    """What a call says about the replica that served it."""

    SUCCESS = "success"
    FAILURE = "failure"
    """The engine failed in this call."""
    GONE = "gone"
    """The replica went away or gave no answer: all its calls may fail at once."""
    NOTHING = "nothing"
    """The call ended for a reason that lies with the caller, or the replica is full."""


def verdict_of(error: BaseException) -> Verdict:
    """What a failed call says about its replica."""
    if isinstance(error, errors.CallersDeadline):
        return Verdict.NOTHING
    if isinstance(error, errors.Unavailable | errors.DeadlineExceeded):
        return Verdict.GONE
    if isinstance(error, errors.InternalFault) and not isinstance(error, errors.SpeechFault):
        return Verdict.FAILURE
    return Verdict.NOTHING


@dataclass(frozen=True)
class BreakerRules:
    """When breakers open, and for how long."""

    failures: int = 5
    """Failures in a row that open it; 0: it never opens."""
    share: float = 0.5
    """Share of the calls in the window that opens it when they fail."""
    least_calls: int = 20
    """Calls in the window below which their share says nothing."""
    window_seconds: float = 10.0
    open_seconds: float = 2.0
    """How long it is open for the first time; doubled each time that the probe fails."""
    longest_seconds: float = 30.0


@dataclass(frozen=True)
class Attempt:
    """A call that was begun. probe: while its breaker was not closed."""

    begun: float
    probe: bool


class CircuitBreaker:
    """The breaker of one replica, for one event loop. name: for the log. opened: called with the
    seconds until a probe is allowed. now: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        stage: str = "",
        name: str = "",
        rules: BreakerRules | None = None,
        *,
        opened: Callable[[float], object] = lambda _: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage, self._name, self._rules = stage, name, rules or BreakerRules()
        self._opened, self._now = opened, now
        self._row = 0
        """Failures since the last success."""
        self._gone_at = -1.0
        """When the replica was last seen to go away."""
        self._calls: deque[tuple[float, bool]] = deque()
        """Of the window: when each ended, and whether it failed."""
        self._open_until: float | None = None
        self._open_seconds = self._rules.open_seconds
        self._probing = False

    @property
    def is_closed(self) -> bool:
        return self._open_until is None

    @property
    def hopeless(self) -> bool:
        """Whether it has failed so often in a row that not even the last replica of a stage is
        called.
        """
        return not self.is_closed and self._row >= _HOPELESS_FACTOR * self._rules.failures

    @property
    def admits(self) -> bool:
        """Whether a call may begin: any while it is closed, one probe after it was open."""
        return self._open_until is None or (self._now() >= self._open_until and not self._probing)

    @property
    def seconds_to_probe(self) -> float:
        """Until a probe is allowed; 0 while it is closed."""
        return 0.0 if self._open_until is None else max(self._open_until - self._now(), 0.0)

    def begins(self) -> Attempt:
        """A call begins; give the result to `ends`."""
        self._probing = self._probing or not self.is_closed
        return Attempt(self._now(), probe=not self.is_closed)

    def ends(self, attempt: Attempt, verdict: Verdict) -> None:
        """The call has ended."""
        self._probing = self._probing and not attempt.probe
        if verdict is Verdict.NOTHING or not self._rules.failures:
            return
        if verdict is Verdict.SUCCESS:
            self._row = 0
            self._count(failed=False)
            if attempt.probe:
                self._close()
            return
        if verdict is Verdict.GONE and attempt.begun < self._gone_at:
            return
        if verdict is Verdict.GONE:
            self._gone_at = self._now()
        self._row += 1
        self._count(failed=True)
        if (self.is_closed and self._fails) or (attempt.probe and self.seconds_to_probe == 0):
            self._open()

    def found_again(self) -> None:
        """Its health came back after it was really away: it may be another process, so a probe is
        allowed at once.
        """
        if self._open_until is not None:
            self._open_until, self._row = self._now(), min(self._row, self._rules.failures)

    @property
    def _fails(self) -> bool:
        failed = sum(failed for _, failed in self._calls)
        many = len(self._calls) >= self._rules.least_calls and failed >= self._rules.share * len(self._calls)
        return self._row >= self._rules.failures or many

    def _count(self, *, failed: bool) -> None:
        now = self._now()
        self._calls.append((now, failed))
        while self._calls[0][0] < now - self._rules.window_seconds:
            self._calls.popleft()

    def _open(self) -> None:
        if self.is_closed:
            self._open_seconds = self._rules.open_seconds
        else:
            self._open_seconds = min(2 * self._open_seconds, self._rules.longest_seconds)
        self._open_until = self._now() + self._open_seconds
        log.warning(
            "%s at %s gets no calls for %.0f s: %d failed in a row",
            self._stage,
            self._name,
            self._open_seconds,
            self._row,
        )
        self._opened(self._open_seconds)

    def _close(self) -> None:
        if self._open_until is not None:
            self._open_until = None
            self._calls.clear()
            log.info("%s at %s gets calls again", self._stage, self._name)


class Guarded(Protocol):
    """A replica with its breaker."""

    @property
    def breaker(self) -> CircuitBreaker: ...


R = TypeVar("R", bound=Guarded)


def admitted(able: Sequence[R], serving: Collection[R]) -> Sequence[R]:
    """Those of `able` that get a call. serving: all replicas of the stage that serve. If the
    breakers of all these are open, they count only where a replica really fails.
    """
    closed = [replica for replica in able if replica.breaker.admits]
    if closed or any(replica.breaker.is_closed for replica in serving):
        return closed
    return [replica for replica in able if not replica.breaker.hopeless]
