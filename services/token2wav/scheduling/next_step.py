"""The next step: what all streams could do, in the order of their deadlines, as far as one step
takes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.token2wav.decoders.interface import StreamState, Stride
from services.token2wav.inputs.chunking import grid_blocks
from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.deadlines import FIRST_SOUND_SECONDS, SPARE_SECONDS, Due, admitted
from services.token2wav.scheduling.memory_budget import Budget
from services.token2wav.scheduling.step_costs import StepCosts
from services.token2wav.scheduling.stream_slot import Lane


@dataclass(frozen=True)
class Work:
    """One stream's share of a step."""

    lane: Lane
    stride: Stride[StreamState]
    due: Due

    @property
    def worked(self) -> int:
        """Grid blocks that were worked on, when the step is over: a stream may have had to give its
        memory back in it.
        """
        return _blocks(0, self.stride) if self.stride.state.recomputing else self.due.blocks


class NextStep:
    """Guarded by the batcher's lock. batches: whether some decoder takes several streams in a
    step.
    """

    def __init__(self, costs: StepCosts, budget: Budget, *, batches: bool) -> None:
        self._costs, self._budget, self._batches = costs, budget, batches

    def of(self, lanes: Sequence[Lane], now: float) -> list[Work]:
        """Streams of one decoder, at most as many as it takes at once; empty when all have to wait.
        `lanes`: oldest first.
        """
        works = [self._work(lane, stride, now) for lane in lanes if (stride := lane.next_stride()) is not None]
        if not works:
            return []
        if self._budget.used_up(lanes) and not any(work.lane.decoder.goes_on_without_room for work in works):
            return works[:1]
        works.sort(
            key=lambda work: (
                work.lane.sentence.profile is Profile.OFFLINE,
                work.due.by,
                work.lane.served if self._batches else 0,
            )
        )
        if not self._batches:
            works = self._silent_first(works, now)
        decoder = works[0].lane.decoder
        works = [work for work in works if work.lane.decoder is decoder]
        return works[: admitted([work.due for work in works], now, self._costs, decoder.widest_step)]

    def _work(self, lane: Lane, stride: Stride[StreamState], now: float) -> Work:
        if lane.asked is None:
            lane.asked = now
        if lane.speaking and lane.due_at is None:
            lane.due_at = now
        lane.keep_up(now)
        by = lane.plays_until if lane.has_sound or lane.follows is not None else lane.asked + FIRST_SOUND_SECONDS
        return Work(lane, stride, Due(_blocks(stride.state.position, stride), by, lane.has_sound))

    def _silent_first(self, works: list[Work], now: float) -> list[Work]:
        """For an engine that takes one stream at a time: who hears nothing, because nothing has
        been handed out or the player has run dry, goes before all who do, unless one of those would
        run dry for it. `works` are sorted by deadline."""
        silent = [work for work in works if not work.due.sounded or work.due.by < now]
        playing = [work for work in works if work.due.sounded and work.due.by >= now]
        if not silent or silent[0].lane.sentence.profile is Profile.OFFLINE:
            return works
        done = now + self._costs.slow(silent[0].due.blocks)
        for work in playing:
            done += self._costs.slow(work.due.blocks)
            if done + SPARE_SECONDS > work.due.by:
                return playing + silent
        return silent + playing


def _blocks(position: int, stride: Stride[StreamState]) -> int:
    """Grid blocks from `position` to the stride's end; all of them for a stream that is made
    again.
    """
    return grid_blocks(0 if stride.state.recomputing else position, stride.until)
