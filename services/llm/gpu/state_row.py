"""Conversion of a script's rules to a row of the state table."""

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH
from services.llm.generation.sampling import RepetitionAwareChooser, SeededDraw
from services.llm.generation.script import Rules
from services.llm.gpu.kv_slots import KvSlot
from services.llm.gpu.state_table import COLUMNS, Column, Flag


def state_row(rules: Rules, tokens: int, slot: KvSlot, capacity: int) -> list[int]:
    """The row of the state table with which a sequence begins to decode; see `state_table.Column`.
    capacity: most positions with its present pages.
    """
    chooser = rules.chooser
    if not isinstance(chooser, RepetitionAwareChooser) or not isinstance(chooser.draw, SeededDraw):
        raise TypeError(f"the device cannot sample as {type(chooser).__name__} does")
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
        Column.SEED_LOW: _signed(chooser.draw.seed),
        Column.SEED_HIGH: _signed(chooser.draw.seed >> 32),
        Column.SENTENCE: _signed(chooser.draw.sentence),
        Column.CAPACITY: capacity,
    }
    return [columns.get(Column(column), 0) if column < len(Column) else 0 for column in range(COLUMNS)]


def _signed(word: int) -> int:
    """The low 32 bits as a signed number."""
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >= 1 << 31 else word
