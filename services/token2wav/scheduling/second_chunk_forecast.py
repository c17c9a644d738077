"""Forecasts when the chunk after the first will be ready, in an engine that decodes one stream per
step.

The forecast adds up what comes before it: the step in progress, missing tokens, and the steps of
streams that go first.
"""

from collections.abc import Sequence

from services.token2wav.inputs.chunking import grid_blocks
from services.token2wav.scheduling.measurements import StepCosts, TokenPace
from services.token2wav.scheduling.next_step import ScheduledWork
from services.token2wav.scheduling.stream_slot import StreamSlot


class SecondChunkForecast:
    """Guarded by the batcher's lock; moments and seconds of its clock. costs: of single steps that
    gave audio.
    """

    def __init__(self, costs: StepCosts, pace: TokenPace) -> None:
        self._costs, self._pace = costs, pace
        self._in_step: StreamSlot | None = None
        self._free_at = 0.0

    def begins(self, works: Sequence[ScheduledWork], now: float) -> None:
        """A step begins."""
        self._in_step = works[0].slot
        self._free_at = now + self._costs.typical(works[0].pending.blocks)

    def ends(self) -> None:
        """The step has ended."""
        self._in_step, self._free_at = None, 0.0

    def expected(self, slot: StreamSlot, slots: Sequence[StreamSlot], now: float) -> float:
        """When the chunk after the held audio of `slot` is ready if the recent pace continues;
        never before `now`.
        """
        free = max(self._free_at, now)
        own = self._steps(slot)
        if self._in_step is slot:
            return free + own - self._costs.typical(1)
        missing = slot.missing_tokens()
        others = [other for other in slots if other is not slot and not other.cancelled]
        ahead = sum(self._steps(other) for other in others if self._goes_first(other, slot, slots, now))
        begins = free + ahead
        if missing:
            # Tokens that arrive during another stream's step wait for its end.
            there = max(now, (slot.tokens_at or now) + missing * self._pace.expected)
            begins = max(begins, there + (self._costs.typical(1) if others else 0.0))
        return begins + own

    def _steps(self, slot: StreamSlot) -> float:
        """Seconds of the steps to the end of the next hop of `slot`, or of the one in progress."""
        if slot.state is None or slot.state.recomputing or slot.hop is None:
            return self._costs.typical(1)
        begin = slot.state.position - slot.schedule.prompt_tokens
        end = slot.hop.end if slot.decoding else min(slot.schedule.needed(slot.hop), max(len(slot.tokens), begin + 1))
        prompt = slot.schedule.prompt_tokens
        return grid_blocks(prompt + begin, prompt + end) * self._costs.typical(1)

    def _goes_first(self, other: StreamSlot, slot: StreamSlot, slots: Sequence[StreamSlot], now: float) -> bool:
        """Whether a step of `other` may come before the next one of `slot`, see
        `services.token2wav.scheduling.next_step`.
        """
        if other is self._in_step or other.is_decoded or other.missing_tokens() > 0:
            return False
        if not other.is_playing and other.follows is None:
            return (other.waiting_since or now) <= (slot.waiting_since or now)
        return other.plays_until < now + (len(slots) + 1) * self._costs.typical(1)
