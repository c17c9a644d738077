"""The state of each sequence on the device: a row of integers, written by the host when decoding
begins, then by the sampler.

A slot is a row of this table. Slot 0 is a dummy, to which unused rows of a batch point.
"""

import enum


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
