"""The next step: what all streams could do, in the order of their deadlines, as far as one step
takes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.token2wav.decoders.interface import StreamState, Stride
from services.token2wav.inputs.chunking import grid_blocks
from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.deadlines import FIRST_SOUND_SECONDS, SPARE_SECONDS, PendingBlocks, admitted
from services.token2wav.scheduling.memory_budget import Budget
from services.token2wav.scheduling.step_costs import StepCosts
from services.token2wav.scheduling.stream_slot import StreamSlot


@dataclass(frozen=True)
class ScheduledWork:
    """One stream's share of a step."""

    slot: StreamSlot
    step_input: Stride[StreamState]
    due: PendingBlocks

    @property
    def worked(self) -> int:
        """Grid blocks that were worked on, when the step is over: a stream may have had to give its
        memory back in it.
        """
        return _blocks(0, self.step_input) if self.step_input.state.recomputing else self.due.blocks


class NextStep:
    """Guarded by the batcher's lock. batches: whether some decoder takes several streams in a
    step.
    """

    def __init__(self, costs: StepCosts, budget: Budget, *, batches: bool) -> None:
        self._costs, self._budget, self._batches = costs, budget, batches

    def of(self, slots: Sequence[StreamSlot], now: float) -> list[ScheduledWork]:
        """Streams of one decoder, at most as many as it takes at once; empty when all have to wait.
        `slots`: oldest first.
        """
        works = [self._work(slot, step_input, now) for slot in slots if (step_input := slot.next_input()) is not None]
        if not works:
            return []
        if self._budget.used_up(slots) and not any(work.slot.decoder.goes_on_without_room for work in works):
            return works[:1]
        works.sort(
            key=lambda work: (
                work.slot.sentence.profile is Profile.OFFLINE,
                work.due.by,
                work.slot.served if self._batches else 0,
            )
        )
        if not self._batches:
            works = self._silent_first(works, now)
        decoder = works[0].slot.decoder
        works = [work for work in works if work.slot.decoder is decoder]
        return works[: admitted([work.due for work in works], now, self._costs, decoder.widest_step)]

    def _work(self, slot: StreamSlot, step_input: Stride[StreamState], now: float) -> ScheduledWork:
        if slot.asked is None:
            slot.asked = now
        if slot.speaking and slot.due_at is None:
            slot.due_at = now
        slot.keep_up(now)
        by = slot.plays_until if slot.has_sound or slot.follows is not None else slot.asked + FIRST_SOUND_SECONDS
        return ScheduledWork(
            slot, step_input, PendingBlocks(_blocks(step_input.state.position, step_input), by, slot.has_sound)
        )

    def _silent_first(self, works: list[ScheduledWork], now: float) -> list[ScheduledWork]:
        """For an engine that takes one stream at a time: who hears nothing, because nothing has
        been handed out or the player has run dry, goes before all who do, unless one of those would
        run dry for it. `works` are sorted by deadline."""
        silent = [work for work in works if not work.due.sounded or work.due.by < now]
        playing = [work for work in works if work.due.sounded and work.due.by >= now]
        if not silent or silent[0].slot.sentence.profile is Profile.OFFLINE:
            return works
        done = now + self._costs.slow(silent[0].due.blocks)
        for work in playing:
            done += self._costs.slow(work.due.blocks)
            if done + SPARE_SECONDS > work.due.by:
                return playing + silent
        return silent + playing


def _blocks(position: int, step_input: Stride[StreamState]) -> int:
    """Grid blocks from `position` to the step_input's end; all of them for a stream that is made
    again.
    """
    return grid_blocks(0 if step_input.state.recomputing else position, step_input.until)
