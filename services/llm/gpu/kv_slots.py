"""Where a sequence sits on the device: a slot of the state table and pages of the cache, taken and
given back as one.
"""

from dataclasses import dataclass, field

from services.llm.gpu.layout import PAGE


@dataclass
class KvSlot:
    """`pages`: in the order of their positions. Slot and page 0 are nobody's."""

    index: int
    pages: list[int]
    length: int = 0
    """Positions that ran, or are on their way."""
    pending: list[int] = field(default_factory=list)
    """Rows of the joined embedding table that run in chunks, before `last`."""
    last: int = 0
    """The input behind which the device decides."""
    deciding: bool = False
    """The device makes one decision after another."""
    started_ns: int = 0
    """When its first pass began; 0 when that is over."""
    positions: int = 0
    """Of the first pass."""

    @property
    def room(self) -> int:
        """Positions that its pages hold."""
        return len(self.pages) * PAGE


class KvSlotPool:
    """Free slots 1 to `slots` and pages 1 to `pages`. A slot that was given back may be taken at
    once: work on the device is done in order, and every position is written before it is read."""

    def __init__(self, slots: int, pages: int) -> None:
        self._free_slots = list(range(slots, 0, -1))
        self._free_pages = list(range(pages, 0, -1))

    @property
    def free_pages(self) -> int:
        return len(self._free_pages)

    def take(self, count: int) -> KvSlot:
        """A slot with so many pages. Raises IndexError when none is left, which admission rules
        out.
        """
        slot = KvSlot(self._free_slots[-1], self._take(count))
        self._free_slots.pop()
        return slot

    def extend(self, slot: KvSlot, count: int) -> list[int]:
        """So many pages more; returns them. Raises IndexError as `take`."""
        taken = self._take(count)
        slot.pages += taken
        return taken

    def _take(self, count: int) -> list[int]:
        if count > len(self._free_pages):
            raise IndexError(f"{count} pages wanted, {len(self._free_pages)} are free")
        taken, self._free_pages[len(self._free_pages) - count :] = self._free_pages[len(self._free_pages) - count :], []
        return taken

    def give_back(self, slot: KvSlot) -> None:
        """The slot is free."""
        self._free_slots.append(slot.index)
        self._free_pages += slot.pages


def pages_for(capacity: int) -> int:
    """Pages that hold `capacity` positions."""
    return -(-capacity // PAGE)
