"""The state of each sequence on the device: a row of integers, written by the host by the rules of
the script when decoding begins, then by the sampler.

A slot is a row of this table. Slot 0 is a dummy, to which unused rows of a batch point.
"""

import enum

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH
from services.llm.generation.script import Rules
from services.llm.gpu.kv_slots import KvSlot


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
    """The end is masked while the sequence has fewer tokens."""
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
    MASK_RESERVED = 2
    MASK_FILL = 4
    FILL_FIRST = 8
    """Fills are decided also while tokens are replayed."""


NOTHING = -1
"""Decision of a row that is not active."""
NON_FINITE = -2
"""Decision of a row whose logits were not all finite; the sequence ends."""


def state_row(rules: Rules, tokens: int, slot: KvSlot, capacity: int) -> list[int]:
    """The row of the state table with which a sequence begins to decode; see `state_table.Column`.
    capacity: most positions with its present pages.
    """
    _, draw = rules.sampling
    flags = Flag.FILL_FIRST if rules.fills_are_decided else Flag(0)
    for flag, reserved in (
        (Flag.MASK_END, END_OF_SPEECH),
        (Flag.MASK_RESERVED, RESERVED_SPEECH),
        (Flag.MASK_FILL, FILL),
    ):
        flags |= flag if reserved in rules.masked else Flag(0)
    columns = {
        Column.LENGTH: slot.length,
        Column.INPUT: slot.last,
        Column.ACTIVE: 1,
        Column.DECISIONS: rules.decisions,
        Column.TOKENS: tokens,
        Column.SHORTEST: rules.shortest,
        Column.LONGEST: rules.longest,
        Column.FLAGS: int(flags),
        Column.FILL_AT: -1 if rules.fill_at is None else rules.fill_at,
        Column.REPLAY: len(rules.replay),
        Column.SEED_LOW: _signed(draw.seed),
        Column.SEED_HIGH: _signed(draw.seed >> 32),
        Column.SENTENCE: _signed(draw.sentence),
        Column.CAPACITY: capacity,
    }
    return [columns.get(Column(column), 0) if column < len(Column) else 0 for column in range(COLUMNS)]


def _signed(word: int) -> int:
    """The low 32 bits as a signed number."""
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >= 1 << 31 else word
