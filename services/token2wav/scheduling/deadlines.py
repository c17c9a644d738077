"""Who takes part in the next step: those whose time is short, and whoever fits beside them without
making it longer.

Every piece of work has a moment by which it should be done: when the player runs dry, or, for a
stream that nobody hears yet, a little after it could have begun. The earliest go first, so that a
first sound pushes no promised audio late, and the longer it has waited the less it is pushed
itself. A step takes as long as the power of two that holds its blocks, so the rest of that is
filled up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.token2wav.scheduling.step_costs import StepCosts, bucket

FIRST_SOUND_SECONDS = 0.5
"""What a stream that could sound may wait before it counts as late as a player that has run dry."""
SPARE_SECONDS = 0.05
"""For the way to the player and steps that take longer than expected."""
LONGEST_STEP_SECONDS = 0.08
"""Of a step, unless promised audio would be late without longer ones: whoever comes meanwhile waits
for it, and a first piece of 120 ms lasts while the second is made."""
SHORTER = 0.9
"""Of a step's time that one of half the width takes at most, if narrow steps are to be of use: a
crowd waits longer for many of them, and where launches take the time, all widths take the same."""

CROWD = 2.5
"""Widest steps that pressing work fills: from there on they clear it sooner than short ones."""


@dataclass(frozen=True)
class PendingBlocks:
    """A stream's next piece of work. blocks: grid blocks it takes. by: when it should be done, in
    seconds. sounded: its player plays.
    """

    blocks: int
    by: float
    sounded: bool


def admitted(dues: Sequence[PendingBlocks], now: float, costs: StepCosts, widest: int) -> int:
    """How many of `dues`, which are sorted by `by`, the next step takes; at least one. widest:
    streams in a step at most. A width that was never tried is, as soon as it is of use: no guess
    keeps a step narrow."""
    usual = widest
    while (
        usual > 1
        and costs.knows(usual)
        and costs.typical(usual) > max(LONGEST_STEP_SECONDS, costs.typical(usual // 2) / SHORTER)
    ):
        usual //= 2
    pressing = blocks = 0
    most = usual
    for at, due in enumerate(dues):
        blocks += due.blocks
        done = now + _seconds(blocks, usual, costs)
        if due.sounded and now + _seconds(blocks, widest, costs) < due.by < done:
            most = widest
        if not due.sounded or due.by < done + costs.typical(min(blocks, usual)) + SPARE_SECONDS:
            pressing = at + 1
    wanted = sum(due.blocks for due in dues[:pressing]) or blocks
    if wanted >= CROWD * widest:
        most = widest
    room = min(bucket(wanted), most)
    taken = blocks = 0
    for due in dues[:widest]:
        blocks += due.blocks
        if taken and blocks > room:
            break
        taken += 1
    return taken


def _seconds(blocks: int, width: int, costs: StepCosts) -> float:
    """For so many blocks, `width` at a time."""
    full, rest = divmod(blocks, width)
    return full * costs.typical(width) + (costs.typical(rest) if rest else 0.0)
