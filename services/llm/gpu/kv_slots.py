"""Slots of sequences on the device: a row of the state table and pages of the cache, allocated and
freed together.
"""

from dataclasses import dataclass, field

from services.llm.gpu.layout import PAGE


@dataclass
class KvSlot:
    """index: row of the state table. pages: in the order of their positions. Row 0 and page 0 are
    dummies.
    """

    index: int
    pages: list[int]
    length: int = 0
    """Positions that have run or are being run."""
    pending: list[int] = field(default_factory=list)
    """Inputs before `last`, which run in prefill chunks, as rows of the joined embedding table."""
    last: int = 0
    """The last input, after which the device samples."""
    deciding: bool = False
    """Whether the device decodes this sequence."""
    started_ns: int = 0
    """Time at which its first pass began; 0 after that pass."""
    positions: int = 0
    """Number of positions of the first pass."""

    @property
    def room(self) -> int:
        """Number of positions that its pages hold."""
        return len(self.pages) * PAGE


class KvSlotPool:
    """The free slots 1 to `slots` and pages 1 to `pages`. A released slot can be taken at once: the
    device works in order, and every position is written before it is read.
    """

    def __init__(self, slots: int, pages: int) -> None:
        self._free_slots = list(range(slots, 0, -1))
        self._free_pages = list(range(pages, 0, -1))

    @property
    def free_pages(self) -> int:
        return len(self._free_pages)

    def take(self, count: int) -> KvSlot:
        """Take a slot with `count` pages. Raises IndexError when none is left, which admission
        prevents.
        """
        slot = KvSlot(self._free_slots[-1], self._take(count))
        self._free_slots.pop()
        return slot

    def extend(self, slot: KvSlot, count: int) -> list[int]:
        """Add `count` pages to a slot and return them. Raises IndexError as `take`."""
        taken = self._take(count)
        slot.pages += taken
        return taken

    def _take(self, count: int) -> list[int]:
        if count > len(self._free_pages):
            raise IndexError(f"{count} pages wanted, {len(self._free_pages)} are free")
        taken, self._free_pages[len(self._free_pages) - count :] = self._free_pages[len(self._free_pages) - count :], []
        return taken

    def release(self, slot: KvSlot) -> None:
        """Release the slot and its pages."""
        self._free_slots.append(slot.index)
        self._free_pages += slot.pages


def pages_for(capacity: int) -> int:
    """Number of pages that hold `capacity` positions."""
    return -(-capacity // PAGE)
