"""Which streams take part in the next step: those with urgent deadlines, plus as many others as fit
without making the step longer.

Every item of work has a deadline: the moment when the player runs dry or, for a stream that has
given no audio yet, a short time after it could have begun. The earliest deadlines go first. So a
stream's first audio delays no audio that is already promised, and the longer it has waited the less
it is delayed itself. A step takes as long as the power of two that holds its blocks, so it is
filled up to that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.token2wav.scheduling.measurements import StepCosts, bucket

FIRST_SOUND_SECONDS = 0.5
"""Time that a stream without audio may wait before it counts as late as a player that has run
dry.
"""
SPARE_SECONDS = 0.05
"""Reserve for the way to the player and for steps that take longer than expected."""
LONGEST_STEP_SECONDS = 0.08
"""Maximum duration of a step, unless promised audio would be late without longer ones. New streams
wait for it, and a first chunk of 120 ms must last while the second is computed.
"""
WORTHWHILE_RATIO = 0.9
"""Narrow steps are worthwhile only if half the width takes at most this share of the time. With
many streams, many narrow steps mean longer waiting, and where launches dominate, all widths take
the same time.
"""

CROWD = 2.5
"""Ratio of urgent blocks to the maximum width from which on wide steps clear them sooner than short
ones.
"""


@dataclass(frozen=True)
class PendingBlocks:
    """The next work of a stream. blocks: its grid blocks. by: its deadline, in seconds of the
    batcher's clock. playing: whether its player is playing.
    """

    blocks: int
    by: float
    playing: bool


def admitted(pending: Sequence[PendingBlocks], now: float, costs: StepCosts, widest: int) -> int:
    """How many of `pending`, sorted by `by`, the next step takes; at least one. widest: maximum
    number of streams in a step.

    A width without measurements is used as soon as it is needed, so that no estimate keeps steps
    narrow.
    """
    usual = widest
    while (
        usual > 1
        and costs.knows(usual)
        and costs.typical(usual) > max(LONGEST_STEP_SECONDS, costs.typical(usual // 2) / WORTHWHILE_RATIO)
    ):
        usual //= 2
    urgent = blocks = 0
    most = usual
    for at, item in enumerate(pending):
        blocks += item.blocks
        done = now + _seconds(blocks, usual, costs)
        if item.playing and now + _seconds(blocks, widest, costs) < item.by < done:
            most = widest
        if not item.playing or item.by < done + costs.typical(min(blocks, usual)) + SPARE_SECONDS:
            urgent = at + 1
    wanted = sum(item.blocks for item in pending[:urgent]) or blocks
    if wanted >= CROWD * widest:
        most = widest
    capacity = min(bucket(wanted), most)
    count = blocks = 0
    for item in pending[:widest]:
        blocks += item.blocks
        if count and blocks > capacity:
            break
        count += 1
    return count


def _seconds(blocks: int, width: int, costs: StepCosts) -> float:
    """Seconds for `blocks` in steps of `width` blocks."""
    full, rest = divmod(blocks, width)
    return full * costs.typical(width) + (costs.typical(rest) if rest else 0.0)
