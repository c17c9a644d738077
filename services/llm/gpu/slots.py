"""Slots of sequences on the device: a row of the state table and pages of the cache, allocated and
freed together.

The row holds integers. The host writes it by the rules of the script when decoding begins, then the
sampler does. Slot 0 is a dummy, to which unused rows of a batch point.

A sentence of known text has all its pages from the start and never pauses. The length of a sentence
whose text arrives over time is unknown, so nothing is reserved for it in advance: it gets pages as
it grows (`KvGrowth`). Where no page is free it pauses until other sentences release pages; when all
running sentences are paused, the last one ends with an error.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from cosyserve.errors import InternalFault
from services.llm.engine.scheduler import Scheduler, Sequence
from services.llm.generation.script import Rules
from services.llm.gpu.layout import PAGE


class Column(enum.IntEnum):
    """Columns of the int32 table [slots, COLUMNS]."""

    LENGTH = 0
    """Positions whose keys and values are in the cache."""
    INPUT = 1
    """Row of the joined embedding table that is the next input."""
    ACTIVE = 2
    """1 while the sequence decodes; the sampler clears it when the sequence ends or waits."""
    DECISIONS = 3
    """Number of decisions so far, fills included."""
    TOKENS = 4
    """Number of speech tokens so far."""
    SHORTEST = 5
    """While the sequence has fewer tokens, one special id is masked, see `Flag`."""
    LONGEST = 6
    """The sequence ends when it has this many tokens."""
    FLAGS = 7
    """Bits of `Flag`."""
    FILL_AT = 8
    """Number of the decision that is a fill whatever the scores are; -1: none."""
    REPLAY = 9
    """Number of tokens in the slot's replay row, which are fed instead of drawn."""
    SEED_LOW = 10
    SEED_HIGH = 11
    SENTENCE = 12
    CAPACITY = 13
    """Most positions of the sequence with its present pages."""


COLUMNS = 16


class Flag(enum.IntFlag):
    """Bits of Column.FLAGS."""

    MASK_END = 1
    MASK_OTHERS = 2
    """All special ids but the end and the fill."""
    MASK_FILL = 4
    FILL_FIRST = 8
    """Fills are decided also while tokens are replayed."""
    MASK_REFERENCE = 16
    """The id that the reference masks, where it is not the end."""
    SHORT_MASKS_REFERENCE = 32
    """What is masked up to Column.SHORTEST is that id, in place of the end."""


NOTHING = -1
"""Decision of a row that is not active."""
NON_FINITE = -2
"""Decision of a row whose logits were not all finite; the sequence ends."""


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


LOOKOUT = 8
"""A decoding sentence gets more pages this many positions before the end of its pages."""
TOO_LATE = 3
"""This close to the end the device may have stopped already: then pages are added after its
decision is read.
"""
SequenceSlot = tuple[Sequence, KvSlot | None]


class KvGrowth:
    """Reserves pages for sentences whose text arrives. The step runner calls it with the engine's
    lock held. Counts memory in `Sequence.reserved_bytes`, `page_bytes` per page."""

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


def state_row(rules: Rules, tokens: int, slot: KvSlot, capacity: int) -> list[int]:
    """The row of the state table, by `Column`, with which a sequence begins to decode. capacity:
    most positions with its present pages.
    """
    _, draw = rules.sampling
    columns = {
        Column.LENGTH: slot.length,
        Column.INPUT: slot.last,
        Column.ACTIVE: 1,
        Column.DECISIONS: rules.decisions,
        Column.TOKENS: tokens,
        Column.SHORTEST: rules.shortest,
        Column.LONGEST: rules.longest,
        Column.FLAGS: _masks(rules) | Flag.FILL_FIRST * rules.fills_are_decided,
        Column.FILL_AT: -1 if rules.fill_at is None else rules.fill_at,
        Column.REPLAY: len(rules.replay),
        Column.SEED_LOW: _signed(draw.seed),
        Column.SEED_HIGH: _signed(draw.seed >> 32),
        Column.SENTENCE: _signed(draw.sentence),
        Column.CAPACITY: capacity,
    }
    return [*(columns[column] for column in Column), *[0] * (COLUMNS - len(Column))]


def _masks(rules: Rules) -> int:
    """The bits of `Flag` for the ids that the rules mask. Raises InternalFault for a set of ids
    that the bits cannot name.
    """
    speech, masked = rules.speech, set(rules.masked)
    others = set(speech.all_but(speech.end)) - {speech.fill}
    bits = Flag.MASK_END * (speech.end in masked) | Flag.MASK_FILL * (speech.fill in masked)
    bits |= Flag.SHORT_MASKS_REFERENCE * (rules.masked_while_short != speech.end)
    left = masked & others
    if left == others:
        return bits | Flag.MASK_OTHERS
    if left not in (set(), {speech.masked_by_reference}) or rules.masked_while_short not in (
        speech.end,
        speech.masked_by_reference,
    ):
        raise InternalFault(f"fused steps cannot mask exactly {sorted(masked)} and {rules.masked_while_short}")
    return bits | Flag.MASK_REFERENCE * bool(left)


def _signed(word: int) -> int:
    """The low 32 bits as a signed number."""
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >= 1 << 31 else word
