"""When will a place be free? Learnt from how long requests took, told to those who are refused.

A request of some kind takes time in proportion to its size, such as the bytes of its text; the
factor is the mean of the latest requests of that kind that were answered to their end. What a place
takes in further rounds is the mean of the work that is under way now.

Everybody who is refused is told another moment than those before, as each place can be taken only
once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

SHORTEST_SECONDS = 0.2
"""Nobody is told to come back sooner."""
LONGEST_SECONDS = 30.0
"""Nor later: what is further away is not known."""
OVERDUE_SHARE = 0.25
"""A request that takes longer than expected goes on for this share of what it has taken, as far as
anybody knows.
"""
_NEW_SHARE = 0.1
"""Of the latest request in the mean."""
_KEPT_SECONDS = 0.5
"""A caller may be so much later than it was told."""


@dataclass(frozen=True)
class RequestKind:
    """name: of the door. first_guess: seconds for each unit of size before any request was seen."""

    name: str
    first_guess: float


TEXT = RequestKind("text", 0.02)
"""By bytes of text: about 15 of them are a second of speech in English and Chinese alike."""
ARRIVING_TEXT = RequestKind("arriving text", 10.0)
"""By calls: how much text will come is not known."""
RECORDING = RequestKind("recording", 1e-5)
"""By bytes of the file."""
ANYTHING = RequestKind("anything", 1.0)
"""By calls."""


@dataclass(eq=False)
class ActiveRequest:
    """A request under way. begun: seconds of the clock."""

    kind: RequestKind
    size: float
    begun: float


class WaitEstimator:
    """Moments are seconds of one clock that only grows."""

    def __init__(self) -> None:
        self._requests: list[ActiveRequest] = []
        self._per_size: dict[str, float] = {}
        self._promised: list[float] = []

    def begins(self, kind: RequestKind, size: float, now: float) -> ActiveRequest:
        """A request has got a place."""
        request = ActiveRequest(kind, size, now)
        self._requests.append(request)
        if self._promised:
            self._promised.pop(0)
        return request

    def ends(self, request: ActiveRequest, now: float, *, completed: bool) -> None:
        """It is over; completed: it was answered to its end, so its time says something about
        others.
        """
        self._requests.remove(request)
        if not completed:
            return
        before = self._per_size.get(request.kind.name)
        seconds_per_unit = (now - request.begun) / max(request.size, 1.0)
        self._per_size[request.kind.name] = (
            seconds_per_unit if before is None else before + _NEW_SHARE * (seconds_per_unit - before)
        )

    def next_place(self, limit: int, now: float) -> float:
        """Seconds until one of `limit` places is expected to be free for one more who is refused
        now, those told before counted.
        """
        self._promised = [moment for moment in self._promised if moment + _KEPT_SECONDS > now]
        remaining = sorted(self._remaining(request, now) for request in self._requests)
        at = max(len(remaining) - limit, 0) + len(self._promised)
        wait = min(max(self._nth(remaining, at), SHORTEST_SECONDS), LONGEST_SECONDS)
        if len(self._promised) < 2 * limit:
            self._promised = sorted([*self._promised, now + wait])
        return wait

    def _nth(self, remaining: Sequence[float], at: int) -> float:
        """When the place number `at` is free: those who come back stay, too."""
        if not remaining:
            return SHORTEST_SECONDS
        rounds, place = divmod(at, len(remaining))
        return remaining[place] + rounds * sum(map(self._expected, self._requests)) / len(self._requests)

    def _expected(self, request: ActiveRequest) -> float:
        return max(request.size, 1.0) * self._per_size.get(request.kind.name, request.kind.first_guess)

    def _remaining(self, request: ActiveRequest, now: float) -> float:
        elapsed = now - request.begun
        return max(self._expected(request) - elapsed, OVERDUE_SHARE * elapsed)
