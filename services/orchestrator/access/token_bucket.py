"""A limit of so much in a period, as a bucket that fills at a constant rate.

A full bucket allows the amount of a whole period at once; on the long run no more than the limit is
taken. An amount above what the bucket can hold needs a full bucket and leaves a debt, which later
amounts wait for.
"""

import time
from collections.abc import Callable


class TokenBucket:
    """seconds: the period. now: a monotonic clock, in seconds."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._now = seconds, now
        self._level = 1.0
        """As a share of the capacity, so that it keeps its meaning when the limit changes."""
        self._at = now()

    def wait(self, amount: float, capacity: float) -> float:
        """Seconds until `amount` may be taken; 0: now. capacity: the limit for a period."""
        needed = min(amount / capacity, 1.0)
        return max((needed - self._filled()) * self._seconds, 0.0)

    def take(self, amount: float, capacity: float) -> None:
        """Remove `amount`, whether or not it is there; a negative one is given back."""
        self._level = min(self._filled() - amount / capacity, 1.0)

    @property
    def full(self) -> bool:
        """Whether it is as at the beginning."""
        return self._filled() >= 1.0

    def _filled(self) -> float:
        now = self._now()
        self._level = min(self._level + (now - self._at) / self._seconds, 1.0)
        self._at = now
        return self._level
