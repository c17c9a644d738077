"""Allocation of pages to sentences whose text arrives over time: they get pages as they grow. The
step runner calls it with the engine's lock held.

The length of such a sentence is unknown, so nothing is reserved for it in advance. Where no page is
free it pauses until other sentences release pages; when all running sentences are paused, the last
one ends with an error. Sentences of known text have all their pages from the start and never pause.
"""

from collections.abc import Iterable

from services.llm.engine.scheduler import Scheduler, Sequence
from services.llm.gpu.kv_slots import KvSlot, pages_for
from services.llm.gpu.layout import PAGE

LOOKOUT = 8
"""A decoding sentence gets more pages this many positions before the end of its pages."""
TOO_LATE = 3
"""This close to the end the device may have stopped already: then pages are added after its
decision is read.
"""
SequenceSlot = tuple[Sequence, KvSlot | None]


class KvGrowth:
    """Counts memory in `Sequence.reserved_bytes`, `page_bytes` per page."""

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes

    def pages(self, sequence: Sequence) -> int:
        """Number of pages reserved for the sequence."""
        return sequence.reserved_bytes // self._page_bytes

    def reserve(self, scheduler: Scheduler, streams: Iterable[SequenceSlot]) -> list[Sequence]:
        """Reserve more pages for the sequences that need them, while there are free ones; returns
        these sequences.
        """
        grown, limit = [], scheduler.limits.kv_bytes
        for sequence, slot in streams:
            wanted = self._lacking(sequence, slot) * self._page_bytes
            if wanted and (limit is None or scheduler.reserved_bytes + wanted <= limit):
                sequence.reserved_bytes += wanted
                grown.append(sequence)
        return grown

    def stuck(self, sequence: Sequence, slot: KvSlot | None) -> bool:
        """Whether the sequence has inputs to run but no pages for them."""
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
    """Number of positions after its pending inputs, at most its capacity."""
    return min((slot.length if slot else 0) + sequence.script.ready, sequence.capacity)
