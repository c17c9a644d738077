"""What the device knows of each sequence: a row of whole numbers, written by the host when it
begins or goes on, then by the sampler.

A slot is a row of this table. Slot 0 is nobody's: rows of a batch that are not taken point to it.
"""

import enum


class Column(enum.IntEnum):
    """Columns of the int32 table [slots, COLUMNS]."""

    LENGTH = 0
    """Positions whose keys and values are in the cache."""
    INPUT = 1
    """Row of the joined embedding table that runs next."""
    ACTIVE = 2
    """1 while decisions are due; the sampler clears it when a sequence ends or waits."""
    DECISIONS = 3
    """Decisions so far, fills included."""
    TOKENS = 4
    """Speech tokens so far."""
    SHORTEST = 5
    """The end is masked while there are fewer tokens than this."""
    LONGEST = 6
    """With so many tokens it is over."""
    FLAGS = 7
    FILL_AT = 8
    """Number of the decision that is a fill without asking; -1: none."""
    REPLAY = 9
    """Tokens in the slot's replay row, taken as made."""
    SEED_LOW = 10
    SEED_HIGH = 11
    SENTENCE = 12
    CAPACITY = 13
    """Positions that it may come to, and that its pages hold."""


COLUMNS = 16


class Flag(enum.IntFlag):
    """Bits of Column.FLAGS."""

    MASK_END = 1
    MASK_RESERVED = 2
    MASK_FILL = 4
    FILL_FIRST = 8
    """A fill is decided anew also where tokens are replayed."""


NOTHING = -1
"""In the decisions of a step: the row had nothing to decide."""
NON_FINITE = -2
"""The row's logits were not all finite; the sequence is over."""
