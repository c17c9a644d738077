"""When the piece behind the first will be made, in an engine that takes one stream at a time.

What goes before it is counted: the step under way, tokens that have yet to come, and the steps of
streams that are served first.
"""

from collections.abc import Sequence

from services.token2wav.inputs.chunking import grid_blocks
from services.token2wav.scheduling.next_step import Work
from services.token2wav.scheduling.step_costs import StepCosts
from services.token2wav.scheduling.stream_slot import Lane
from services.token2wav.scheduling.token_pace import TokenPace


class SecondPiece:
    """Guarded by the batcher's lock; moments and seconds of its clock. costs: of single steps that
    made sound.
    """

    def __init__(self, costs: StepCosts, pace: TokenPace) -> None:
        self._costs, self._pace = costs, pace
        self._under_way: Lane | None = None
        self._free_at = 0.0

    def begins(self, works: Sequence[Work], now: float) -> None:
        """A step begins."""
        self._under_way = works[0].lane
        self._free_at = now + self._costs.typical(works[0].due.blocks)

    def ends(self) -> None:
        """It is over."""
        self._under_way, self._free_at = None, 0.0

    def expected(self, lane: Lane, lanes: Sequence[Lane], now: float) -> float:
        """When the piece behind what `lane` holds is made if all goes on as lately; never before
        `now`.
        """
        free = max(self._free_at, now)
        own = self._steps(lane)
        if self._under_way is lane:
            return free + own - self._costs.typical(1)
        missing = lane.missing_tokens()
        others = [other for other in lanes if other is not lane and not other.cancelled]
        ahead = sum(self._steps(other) for other in others if self._goes_first(other, lane, lanes, now))
        begins = free + ahead
        if missing:
            # What comes while another stream's step is under way waits for its end.
            there = max(now, (lane.fed or now) + missing * self._pace.expected)
            begins = max(begins, there + (self._costs.typical(1) if others else 0.0))
        return begins + own

    def _steps(self, lane: Lane) -> float:
        """Seconds of the steps to the end of the next hop of `lane`, or of the one that is being
        spoken.
        """
        if lane.state is None or lane.state.recomputing or lane.hop is None:
            return self._costs.typical(1)
        begin = lane.state.position - lane.schedule.prompt_tokens
        end = lane.hop.end if lane.speaking else min(lane.schedule.needed(lane.hop), max(len(lane.tokens), begin + 1))
        prompt = lane.schedule.prompt_tokens
        return grid_blocks(prompt + begin, prompt + end) * self._costs.typical(1)

    def _goes_first(self, other: Lane, lane: Lane, lanes: Sequence[Lane], now: float) -> bool:
        """Whether a step of `other` may come before the next one of `lane`, see
        `services.token2wav.scheduling.next_step`.
        """
        if other is self._under_way or other.is_spoken or other.missing_tokens() > 0:
            return False
        if not other.has_sound and other.follows is None:
            return (other.asked or now) <= (lane.asked or now)
        return other.plays_until < now + (len(lanes) + 1) * self._costs.typical(1)
