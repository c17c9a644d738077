"""The door: at most so many requests at once, the rest are told at once when to come back."""

import contextlib
import time
from collections.abc import Iterator

from cosyserve.errors import Overloaded

_SHORTEST_RETRY_SECONDS = 0.2


class Admission:
    """Counts requests in flight. There is no queue: a talking agent is better served by another replica now than by this one later."""

    def __init__(self, limit: int, what: str = "streams") -> None:
        if limit < 1:
            raise ValueError(f"at least one of the {what} must be admitted, got {limit}")
        self._what = what
        self.limit = limit
        self.active = 0
        self._mean_seconds = 1.0

    @contextlib.contextmanager
    def admit(self) -> Iterator[None]:
        """Hold a place while the block runs. Raises Overloaded with a retry hint when there is none."""
        if self.active >= self.limit:
            # With `limit` streams of this mean length one place is expected to come free after this long.
            retry = max(_SHORTEST_RETRY_SECONDS, self._mean_seconds / self.limit)
            raise Overloaded(f"{self.active} of {self.limit} {self._what} are in use; try again in {retry:.1f} s", retry_after=retry)
        self.active += 1
        begin = time.monotonic()
        try:
            yield
        finally:
            self.active -= 1
            self._mean_seconds += 0.1 * (time.monotonic() - begin - self._mean_seconds)
