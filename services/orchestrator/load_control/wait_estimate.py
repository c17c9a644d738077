"""Estimates when a place will be free, from the durations of earlier requests; refused callers get
the estimate as their retry hint.

The duration of a request of some kind is taken to be proportional to its size, such as the bytes of
its text; the factor is a moving mean over completed requests of that kind. A place that is needed
several times over is estimated with the mean of the requests now running.

Each refused caller gets a later time than the ones refused before it, because each place can be
taken only once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

SHORTEST_SECONDS = 0.2
"""Shortest retry hint."""
LONGEST_SECONDS = 30.0
"""Longest retry hint: a later time cannot be predicted."""
OVERDUE_SHARE = 0.25
"""A request that takes longer than expected is assumed to need this share of its elapsed time
again.
"""
_NEW_SHARE = 0.1
"""Weight of the latest request in the mean."""
_RESERVED_SECONDS = 0.5
"""How long a promised place is reserved after the time in the retry hint."""


@dataclass(frozen=True, eq=False)
class RequestKind:
    first_guess: float
    """Seconds for each unit of size before any request of the kind was completed."""


TEXT = RequestKind(0.02)
"""Size in bytes of text: about 15 of them are a second of speech in English and Chinese alike."""
ARRIVING_TEXT = RequestKind(10.0)
"""Size in calls: the length of the text is not known in advance."""
RECORDING = RequestKind(1e-5)
"""Size in bytes of the file."""
ANYTHING = RequestKind(1.0)
"""Size in calls."""
KINDS = {"text": TEXT, "arriving text": ARRIVING_TEXT, "recording": RECORDING, "anything": ANYTHING}
"""By name."""


@dataclass(eq=False)
class ActiveRequest:
    """A running request. begun: time of its admission, in seconds. cut_short: its caller ended it
    early, so its duration says nothing about others.
    """

    kind: RequestKind
    size: float
    begun: float
    cut_short: bool = False


class WaitEstimator:
    """Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._requests: list[ActiveRequest] = []
        self._per_size: dict[RequestKind, float] = {}
        self._promised: list[float] = []

    def begins(self, kind: RequestKind, size: float, now: float) -> ActiveRequest:
        """A request was admitted."""
        request = ActiveRequest(kind, size, now)
        self._requests.append(request)
        if self._promised:
            self._promised.pop(0)
        return request

    def ends(self, request: ActiveRequest, now: float, *, completed: bool) -> None:
        """The request is over. completed: it was answered in full, so its duration counts for later
        estimates.
        """
        self._requests.remove(request)
        if not completed:
            return
        before = self._per_size.get(request.kind)
        seconds_per_unit = (now - request.begun) / max(request.size, 1.0)
        self._per_size[request.kind] = (
            seconds_per_unit if before is None else before + _NEW_SHARE * (seconds_per_unit - before)
        )

    def next_place(self, limit: int, now: float) -> float:
        """Seconds until one of `limit` places is expected to be free for one more refused caller,
        after the callers refused before.
        """
        self._promised = [moment for moment in self._promised if moment + _RESERVED_SECONDS > now]
        remaining = sorted(self._remaining(request, now) for request in self._requests)
        at = max(len(remaining) - limit, 0) + len(self._promised)
        wait = min(max(self._nth(remaining, at), SHORTEST_SECONDS), LONGEST_SECONDS)
        if len(self._promised) < 2 * limit:
            self._promised = sorted([*self._promised, now + wait])
        return wait

    def _nth(self, remaining: Sequence[float], at: int) -> float:
        """When place number `at` is free, if each caller that comes back keeps its place in
        turn.
        """
        if not remaining:
            return SHORTEST_SECONDS
        rounds, place = divmod(at, len(remaining))
        return remaining[place] + rounds * sum(map(self._expected, self._requests)) / len(self._requests)

    def _expected(self, request: ActiveRequest) -> float:
        return max(request.size, 1.0) * self._per_size.get(request.kind, request.kind.first_guess)

    def _remaining(self, request: ActiveRequest, now: float) -> float:
        elapsed = now - request.begun
        return max(self._expected(request) - elapsed, OVERDUE_SHARE * elapsed)
