"""Selects the next step: the pending work of all streams in the order of their deadlines, as much
as one step takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.token2wav.decoders.interface import StepInput, StreamState
from services.token2wav.inputs.chunking import grid_blocks
from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.measurements import StepCosts
from services.token2wav.scheduling.memory_budget import Budget
from services.token2wav.scheduling.next_step import FIRST_SOUND_SECONDS, SPARE_SECONDS, PendingBlocks, admitted
from services.token2wav.scheduling.stream_slot import StreamSlot


@dataclass(frozen=True)
class ScheduledWork:
    """One stream's share of a step."""

    slot: StreamSlot
    step_input: StepInput[StreamState]
    pending: PendingBlocks

    @property
    def worked(self) -> int:
        """Grid blocks that were computed, once the step is over: a stream may have had to give up
        its memory in it.
        """
        return _blocks(0, self.step_input) if self.step_input.state.recomputing else self.pending.blocks


class NextStep:
    """Guarded by the batcher's lock. batches: whether some decoder takes several streams in a
    step.
    """

    def __init__(self, costs: StepCosts, budget: Budget, *, batches: bool) -> None:
        self._costs, self._budget, self._batches = costs, budget, batches

    def of(self, slots: Sequence[StreamSlot], now: float) -> list[ScheduledWork]:
        """Streams of one decoder, at most as many as a step takes; empty if all have to wait.
        slots: oldest first.
        """
        works = [self._work(slot, step_input, now) for slot in slots if (step_input := slot.next_input()) is not None]
        if not works:
            return []
        if self._budget.used_up(slots) and not any(work.slot.decoder.goes_on_without_room for work in works):
            return works[:1]
        works.sort(
            key=lambda work: (
                work.slot.sentence.profile is Profile.OFFLINE,
                work.pending.by,
                work.slot.last_step if self._batches else 0,
            )
        )
        if not self._batches:
            works = self._silent_first(works, now)
        decoder = works[0].slot.decoder
        works = [work for work in works if work.slot.decoder is decoder]
        return works[: admitted([work.pending for work in works], now, self._costs, decoder.widest_step)]

    def _work(self, slot: StreamSlot, step_input: StepInput[StreamState], now: float) -> ScheduledWork:
        if slot.waiting_since is None:
            slot.waiting_since = now
        if slot.decoding and slot.due_at is None:
            slot.due_at = now
        slot.update_deadline(now)
        by = (
            slot.plays_until
            if slot.is_playing or slot.follows is not None
            else slot.waiting_since + FIRST_SOUND_SECONDS
        )
        return ScheduledWork(
            slot, step_input, PendingBlocks(_blocks(step_input.state.position, step_input), by, slot.is_playing)
        )

    def _silent_first(self, works: list[ScheduledWork], now: float) -> list[ScheduledWork]:
        """For an engine that decodes one stream per step: streams whose listener hears nothing (no
        audio delivered yet, or the player has run dry) go before all others, unless one of those
        would run dry because of that. `works` are sorted by deadline.
        """
        silent = [work for work in works if not work.pending.playing or work.pending.by < now]
        playing = [work for work in works if work.pending.playing and work.pending.by >= now]
        if not silent or silent[0].slot.sentence.profile is Profile.OFFLINE:
            return works
        done = now + self._costs.slow(silent[0].pending.blocks)
        for work in playing:
            done += self._costs.slow(work.pending.blocks)
            if done + SPARE_SECONDS > work.pending.by:
                return playing + silent
        return silent + playing


def _blocks(position: int, step_input: StepInput[StreamState]) -> int:
    """Grid blocks from `position` to the end of the input; all blocks for a stream that is
    recomputed.
    """
    return grid_blocks(0 if step_input.state.recomputing else position, step_input.until)
