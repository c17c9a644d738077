"""What the metrics say about the streams of a batcher at one moment."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from cosyserve.metrics import names
from cosyserve.metrics.instruments import gauge
from services.token2wav.scheduling.stream_slot import FIRST_SOUND_SECONDS, StreamSlot

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
        since = {slot: moment for slot in slots if (moment := waits_since(slot)) is not None}
        slacks = [min(max(slack(slot, now) / SAFE_SECONDS, 0.0), 1.0) for slot in since]
        waiting = [now - moment for slot, moment in since.items() if slot not in in_step]
        used, count = pages or (len(slots), limit)
        return cls(
            len(slots), limit, used, count, sum(slacks) / len(slacks) if slacks else 1.0, max(waiting, default=0.0)
        )


def waits_since(slot: StreamSlot) -> float | None:
    """Since when a stream waits for the engine, in seconds of the batcher's clock; None: it waits
    for tokens, or for its reader.
    """
    if slot.is_decoded or slot.unread_hops >= 2 or slot.missing_tokens():
        return None
    return slot.due_at if slot.decoding else slot.waiting_since


def slack(slot: StreamSlot, now: float) -> float:
    """Seconds until its player runs dry or, before its first sound, until that is late."""
    if slot.is_playing or slot.follows is not None:
        return slot.plays_until - now
    return (slot.waiting_since or now) + FIRST_SOUND_SECONDS - now


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
