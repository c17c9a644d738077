"""Pages for sentences whose text arrives: as many as they need, when they need them. Plain policy;
the stepper calls it under the engine's lock.

Nobody can say how long such a sentence will be, so nothing is promised to it. Where no page is free
it waits, at the place where it is, until others give theirs back; when only such sentences are
left, the one that came last is ended. Sentences of known text have all their pages from the start
and never wait.
"""

from collections.abc import Iterable

from services.llm.engine.scheduler import Scheduler
from services.llm.engine.sequence import Sequence
from services.llm.gpu.kv_slots import KvSlot, pages_for
from services.llm.gpu.layout import PAGE

LOOKOUT = 8
"""Positions before the end of its pages at which a sentence that decides gets more."""
TOO_LATE = 3
"""So close to the end the device may have stopped already: more are given when its answer has
come.
"""
SequenceSlot = tuple[Sequence, KvSlot | None]


class KvGrowth:
    """Memory is counted in `Sequence.reserved_bytes`, `page_bytes` a page."""

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes

    def pages(self, sequence: Sequence) -> int:
        """Pages that are kept for it."""
        return sequence.reserved_bytes // self._page_bytes

    def reserve(self, scheduler: Scheduler, streams: Iterable[SequenceSlot]) -> list[Sequence]:
        """Keep more for those that need more and can have it; returns them."""
        grown, limit = [], scheduler.limits.kv_bytes
        for sequence, slot in streams:
            wanted = self._lacking(sequence, slot) * self._page_bytes
            if wanted and (limit is None or scheduler.reserved_bytes + wanted <= limit):
                sequence.reserved_bytes += wanted
                grown.append(sequence)
        return grown

    def stuck(self, sequence: Sequence, slot: KvSlot | None) -> bool:
        """Whether it has something to run and no room for it."""
        return not sequence.in_flight and _due(sequence, slot) > self.pages(sequence) * PAGE

    def _lacking(self, sequence: Sequence, slot: KvSlot | None) -> int:
        room = self.pages(sequence) * PAGE
        if sequence.closed:
            return 0
        if slot is not None and slot.deciding:
            wanted = 0 if slot.length + TOO_LATE > room else slot.length + LOOKOUT
        else:
            wanted = 0 if sequence.in_flight else _due(sequence, slot) + LOOKOUT
        return max(0, pages_for(min(wanted, sequence.capacity)) - self.pages(sequence))


def _due(sequence: Sequence, slot: KvSlot | None) -> int:
    """Positions that it comes to with what it has to run; never more than it may."""
    return min((slot.length if slot else 0) + sequence.script.ready, sequence.capacity)
