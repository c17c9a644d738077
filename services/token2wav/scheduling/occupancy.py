"""What the metrics say about the streams of a batcher at one moment."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from cosyserve.metrics import names
from cosyserve.metrics.instruments import gauge
from services.token2wav.scheduling.stream_slot import StreamSlot

SAFE_SECONDS = 0.5
"""A player that has at least this long to play is not about to run dry."""


@dataclass(frozen=True)
class Occupancy:
    """streams, limit: open, and most. pages_used, pages: of decoder state; an engine without pages
    has one for each stream. slack: 0 if the players of all streams that wait for the engine are
    about to run dry, 1 if none is. queue_age: seconds for which the oldest of them has waited.
    """

    streams: int
    limit: int
    pages_used: int
    pages: int
    slack: float
    queue_age: float

    @classmethod
    def of(
        cls,
        slots: Sequence[StreamSlot],
        in_step: Collection[StreamSlot],
        limit: int,
        pages: tuple[int, int] | None,
        now: float,
    ) -> "Occupancy":
        """pages: used ones and all, if the decoder has any. now: on the clock of the slots."""
        since = {slot: moment for slot in slots if (moment := slot.waits_since()) is not None}
        slack = [min(max(slot.slack(now) / SAFE_SECONDS, 0.0), 1.0) for slot in since]
        waiting = [now - moment for slot, moment in since.items() if slot not in in_step]
        used, count = pages or (len(slots), limit)
        return cls(len(slots), limit, used, count, sum(slack) / len(slack) if slack else 1.0, max(waiting, default=0.0))


class HasOccupancy(Protocol):
    def occupancy(self) -> Occupancy: ...


def watch(batcher: HasOccupancy) -> None:
    """Let the metrics read the batcher as long as it lives."""
    gauge(names.STREAMS_ACTIVE).watch(batcher, lambda one: one.occupancy().streams)
    gauge(names.STREAMS_LIMIT).watch(batcher, lambda one: one.occupancy().limit)
    gauge(names.TOKEN2WAV_PAGES_USED).watch(batcher, lambda one: one.occupancy().pages_used)
    gauge(names.TOKEN2WAV_PAGES).watch(batcher, lambda one: one.occupancy().pages)
    gauge(names.TOKEN2WAV_SLACK).watch(batcher, lambda one: one.occupancy().slack)
    gauge(names.QUEUE_AGE).watch(batcher, lambda one: one.occupancy().queue_age)
