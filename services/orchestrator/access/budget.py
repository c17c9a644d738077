"""What one caller may still use of its limits here, where several orchestrators share them."""

import contextlib
import time
from collections.abc import Callable, Iterator

from cosyserve.errors import LimitReached, Overloaded
from cosyserve.keys.key_record import KeyLimits

_CONCURRENT_RETRY_SECONDS = 1.0
_MINUTE, _DAY = 60.0, 86_400.0
_RATES = (
    ("rate", "requests a minute"),
    ("characters", "characters a minute"),
    ("characters", "characters a day"),
)


class TokenBucket:
    """A limit of so much in a period, as a bucket that fills at a constant rate.

    A full bucket allows the amount of a whole period at once; on the long run no more than the
    limit is taken. An amount above what the bucket can hold needs a full bucket and leaves a debt,
    which later amounts wait for. seconds: the period. now: a monotonic clock, in seconds."""

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


class Budget:
    """name: of the key, for messages. parts: into how many parts its limits are divided; this is
    one of them. now: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        name: str = "",
        limits: KeyLimits | None = None,
        parts: Callable[[], int] = lambda: 1,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or KeyLimits()
        """May be changed at any time."""
        self._name, self._parts = name, parts
        self.active = 0
        self._requests = TokenBucket(_MINUTE, now)
        self._characters = TokenBucket(_MINUTE, now)
        self._daily = TokenBucket(_DAY, now)

    @property
    def unused(self) -> bool:
        """Whether forgetting it changes nothing."""
        return not self.active and self._requests.full and self._characters.full and self._daily.full

    @contextlib.contextmanager
    def use(self, characters: int = 0) -> Iterator[None]:
        """One request with so much text while the block runs. Raises LimitReached, with the time
        after which it would not be. A request that the block refuses as Overloaded counts for
        nothing.
        """
        self._require_room(characters)
        self.active += 1
        self._take(1, characters)
        try:
            yield
        except Overloaded:
            self._take(-1, -characters)
            raise
        finally:
            self.active -= 1

    def charge(self, characters: int) -> None:
        """Count text that arrives during a request: it is spoken, and later requests wait for
        it.
        """
        self._take(0, characters)

    def _take(self, requests: int, characters: int) -> None:
        for bucket, amount, limit in self._buckets(requests, characters):
            if limit is not None:
                bucket.take(amount, limit / self._parts())

    def _require_room(self, characters: int) -> None:
        allowed = self.limits.concurrent
        if allowed is not None and self.active >= (here := max(allowed // self._parts(), 1)):
            raise self._reached("concurrency", f"{self.active} of {here} requests at once", _CONCURRENT_RETRY_SECONDS)
        # A stream whose text is still to come needs room for some of it.
        amounts = self._buckets(1, max(characters, 1))
        for (bucket, amount, limit), (name, what) in zip(amounts, _RATES, strict=True):
            if limit is not None and (seconds := bucket.wait(amount, limit / self._parts())) > 0:
                raise self._reached(name, f"the {limit / self._parts():g} {what} are used", seconds)

    def _buckets(self, requests: int, characters: int) -> tuple[tuple[TokenBucket, int, int | None], ...]:
        limits = self.limits
        return (
            (self._requests, requests, limits.requests_per_minute),
            (self._characters, characters, limits.characters_per_minute),
            (self._daily, characters, limits.characters_per_day),
        )

    def _reached(self, limit: str, what: str, seconds: float) -> LimitReached:
        part = f" in this part of {self._parts()}" if self._parts() > 1 else ""
        return LimitReached(
            f"a limit of the key {self._name} is reached: {what}{part}; try again in {seconds:.1f} s",
            retry_after=seconds,
            limit=limit,
        )
