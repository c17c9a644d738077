"""Where a call of the public service is let in: the places of the service and the limits of the
caller's key, together.
"""

import abc
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from cosyserve.metrics import names
from cosyserve.metrics.instruments import gauge
from services.orchestrator.access.caller import Call
from services.orchestrator.load_control.admission import Admission, PreemptiblePlace
from services.orchestrator.load_control.fair_shares import Share
from services.orchestrator.load_control.wait_estimate import ANYTHING, ActiveRequest, RequestKind

Place = Literal["stream", "voice", "warm-up", "none"]
"""Of a request that is spoken; of a voice that is made; of a warm-up, which waits for none; none:
only the limits of the key count.
"""


class Occupancy(Protocol):
    """How full the service is."""

    @property
    def limit(self) -> int:
        """Requests that are admitted at once now."""

    @property
    def active(self) -> int:
        """Those that hold a place."""


@dataclass(frozen=True)
class Entry:
    """What a call needs. kind, size: as in `Admission.admit`. characters: of its text."""

    place: Place
    kind: RequestKind = ANYTHING
    size: float = 1.0
    characters: int = 0


class Entrance(abc.ABC):
    """The same for one process, which counts by itself, and for one of several, which ask."""

    @property
    @abc.abstractmethod
    def occupancy(self) -> Occupancy:
        """Of the places of streams."""

    @abc.abstractmethod
    def enter(
        self, call: Call, entry: Entry, preemptible: PreemptiblePlace | None = None
    ) -> contextlib.AbstractAsyncContextManager[ActiveRequest]:
        """Hold a place, and count against the limits of the key, while the block runs. preemptible:
        the place, if another request may take it while it is idle. Raises LimitReached and
        Overloaded.
        """


class OwnEntrance(Entrance):
    """Counts in this process. most_makings: voices that may be made at once. wait_seconds,
    kept_seconds: as in `Admission`.
    """

    def __init__(self, limit: int, most_makings: int, *, wait_seconds: float = 0.0, kept_seconds: float = 0.0) -> None:
        self.streams = Admission(limit, wait_seconds=wait_seconds, kept_seconds=kept_seconds)
        self._makings = Admission(most_makings, "places for new voices", named="voices")
        for metric, read in (
            (names.STREAMS_ACTIVE, lambda admission: admission.active),
            (names.STREAMS_LIMIT, lambda admission: admission.limit),
            (names.STREAMS_WAITING, lambda admission: admission.waiting),
        ):
            gauge(metric).watch(self.streams, read)
        gauge(names.QUEUE_AGE).watch(self.streams, lambda admission: admission.longest_wait)

    @property
    def occupancy(self) -> Occupancy:
        return self.streams

    @contextlib.asynccontextmanager
    async def enter(
        self, call: Call, entry: Entry, preemptible: PreemptiblePlace | None = None
    ) -> AsyncIterator[ActiveRequest]:
        with call.budget.use(entry.characters):
            if entry.place == "stream":
                share = Share(call.caller.id, call.caller.weight, call.caller.priority)
                async with self.streams.admit_in_turn(share, entry.kind, entry.size, preemptible) as request:
                    yield request
            elif entry.place == "none":
                yield ActiveRequest(entry.kind, entry.size, 0.0)
            else:
                with (self._makings if entry.place == "voice" else self.streams).admit() as request:
                    yield request
