"""A budget for the retries of one stage, so that a stage that is broken does not get a multiple of
its usual load.

In each window of ten seconds a stage is given retries for a share of its successful calls, and a
floor. A replica that is lost adds a retry for each call that it was serving, at most once in a
window: the loss of one replica never uses the budget up, however many streams it had.

Source of the rule: the retry budgets of Finagle and Linkerd.
"""

import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from cosyserve.errors import Unavailable
from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter, gauge

log = logging.getLogger(__name__)
WINDOW_SECONDS = 10
_LEAST_HINT_SECONDS = 0.2


@dataclass
class _Second:
    """Counts of one second. granted: retries that lost replicas added."""

    number: int
    successes: int = 0
    retries: int = 0
    granted: int = 0


class RetryBudget:
    """The retries of one stage, for one event loop.

    share: retries for each successful call. per_second: retries that are always granted, on
    average over the window. now: a monotonic clock, in seconds.
    """

    def __init__(
        self, stage: str, share: float = 0.2, per_second: float = 2.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.stage, self._share, self._per_second, self._now = stage, share, per_second, now
        self._seconds: deque[_Second] = deque()
        self._lost_at: dict[Hashable, float] = {}
        """When each replica last added retries."""
        self._warned_at = -math.inf
        gauge(names.RETRY_BUDGET).watch(self, lambda budget: [({"stage": budget.stage}, budget.ratio)])

    @property
    def ratio(self) -> float:
        """What is left of the budget: 1 all, 0 nothing."""
        given, used = self._balance()
        return max(given - used, 0.0) / given if given else 0.0

    def succeeded(self) -> None:
        """A call of the stage succeeded."""
        self._second().successes += 1

    def lost(self, replica: Hashable, calls: int) -> None:
        """`replica` is gone, and it was serving so many calls."""
        now = self._now()
        self._lost_at = {one: at for one, at in self._lost_at.items() if now - at < WINDOW_SECONDS}
        if replica not in self._lost_at:
            self._lost_at[replica] = now
            self._second().granted += calls

    def spend(self, why: str) -> None:
        """Take one retry after the failure `why`. Raises Unavailable with a retry hint if none is
        left.
        """
        given, used = self._balance()
        if given - used >= 1:
            self._second().retries += 1
            return
        hint = self._seconds_to_next()
        counter(names.RETRIES_REFUSED).add(stage=self.stage)
        if self._now() - self._warned_at >= 1.0:
            self._warned_at = self._now()
            log.warning("%s has no retries left: %d in %d s", self.stage, used, WINDOW_SECONDS)
        raise Unavailable(
            f"{self.stage} fails too often to be tried again now ({why}); send the request again in {hint:.1f} s",
            retry_after=hint,
        )

    def may_spend(self, why: str) -> bool:
        """Take one retry if one is left."""
        with contextlib.suppress(Unavailable):
            self.spend(why)
            return True
        return False

    def _balance(self) -> tuple[float, int]:
        """Retries given and used in the window that ends now."""
        self._drop_old()
        given = self._per_second * WINDOW_SECONDS + sum(
            self._share * second.successes + second.granted for second in self._seconds
        )
        return given, sum(second.retries for second in self._seconds)

    def _seconds_to_next(self) -> float:
        """Until the oldest retry leaves the window."""
        oldest = next((second.number for second in self._seconds if second.retries), None)
        left = WINDOW_SECONDS if oldest is None else oldest + WINDOW_SECONDS - self._now()
        return max(left, _LEAST_HINT_SECONDS)

    def _second(self) -> _Second:
        number = int(self._now())
        if not self._seconds or self._seconds[-1].number != number:
            self._drop_old()
            self._seconds.append(_Second(number))
        return self._seconds[-1]

    def _drop_old(self) -> None:
        while self._seconds and self._seconds[0].number <= self._now() - WINDOW_SECONDS:
            self._seconds.popleft()
