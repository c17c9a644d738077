"""Admission control: a limit of requests in flight with a retry hint, no queue."""

import contextlib
import time
from collections.abc import Callable, Iterator

from cosyserve.errors import Overloaded
from services.orchestrator.departures import ANYTHING, Departures, Kind


class Place:
    """Of a request that was admitted. cut_short: its caller ended it early, so the time it took says nothing about others."""

    cut_short = False


class Admission:
    """Counts requests in flight. There is no queue: a talking agent is better served by another replica now than by this one later.

    changed: called when a request begins, ends or is refused. now: seconds that only grow.
    """

    def __init__(
        self,
        limit: int,
        what: str = "streams",
        *,
        changed: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if limit < 1:
            raise ValueError(f"at least one of the {what} must be admitted, got {limit}")
        self._what = what
        self.limit = limit
        """May be changed at any time; requests under way stay."""
        self.active = 0
        self.changed = changed
        self._now = now
        self._departures = Departures()

    @contextlib.contextmanager
    def admit(self, kind: Kind = ANYTHING, size: float = 1.0) -> Iterator["Place"]:
        """Hold a place while the block runs. kind, size: what decides how long it takes. Raises Overloaded with a retry hint when there is
        none."""
        if self.active >= self.limit:
            retry = self._departures.next_place(self.limit, self._now())
            self.changed()
            raise Overloaded(f"{self.active} of {self.limit} {self._what} are in use; try again in {retry:.1f} s", retry_after=retry)
        self.active += 1
        stay = self._departures.begins(kind, size, self._now())
        self.changed()
        place, completed = Place(), False
        try:
            yield place
            completed = not place.cut_short
        finally:
            self.active -= 1
            self._departures.ends(stay, self._now(), completed=completed)
            self.changed()
