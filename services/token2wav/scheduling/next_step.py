"""Selects the next step: the pending work of all streams in the order of their deadlines, those
with urgent deadlines plus as many others as fit without making the step longer.

Every item of work has a deadline: the moment when the player runs dry or, for a stream that has
given no audio yet, a short time after it could have begun. The earliest deadlines go first. So a
stream's first audio delays no audio that is already promised, and the longer it has waited the less
it is delayed itself. A step takes as long as the power of two that holds its blocks, so it is
filled up to that.

A step under way is not interrupted: a first hop whose tokens come a moment after it began waits for
its end. A player with a second of sound left hears no gap if its step waits for that first hop, so
it is forecast when they come.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from services.token2wav.decoders.interface import StepInput, StreamState
from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.measurements import StepCosts, bucket
from services.token2wav.scheduling.memory_budget import Budget
from services.token2wav.scheduling.stream_slot import FIRST_SOUND_SECONDS, StreamSlot

AMPLE_SECONDS = 0.3
"""Sound that every player has to have left behind the step that waits: more than two steps of the
longest kind, and the way to the player.
"""
OVERDUE_SECONDS = 0.01
"""For so long tokens are awaited beyond the moment at which they were expected."""
_REMEMBERED = 32
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
FEW = 4
"""With more streams that wait for a step, none waits for a first hop besides: at 40 requests a
second, where the engine has no time to spare, waiting made first sounds later (p95 158 ms for 127,
`python -m bench.token2wav_schedule --streams 180 --tokens 50,175`).
"""


class FirstHopForecast:
    """Guarded by the batcher's lock; moments and seconds of its clock."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)
        self._typical: float | None = None

    def came(self, slot: StreamSlot, now: float) -> None:
        """The tokens of its next hop are complete: of its first one, if none was begun."""
        if _begins(slot):
            self._seen.append(now - slot.opened_at)
            self._typical = median(self._seen)

    def wait(self, slots: Iterable[StreamSlot], step_seconds: float, now: float) -> float | None:
        """Seconds for which a step of `step_seconds` should wait, at most; None if no first hop is
        expected before its end.
        """
        if self._typical is None:
            return None
        expected = [slot.opened_at + self._typical for slot in slots if _awaits_first_hop(slot)]
        soon = [at for at in expected if at - step_seconds <= now < at + OVERDUE_SECONDS]
        return max(soon) + OVERDUE_SECONDS - now if soon else None


def _begins(slot: StreamSlot) -> bool:
    """Whether its listener has heard nothing yet. The tokens of a later sentence may be there when
    it is opened.
    """
    return (
        slot.hop is None
        and not slot.is_playing
        and not slot.is_heard
        and slot.follows is None
        and slot.sentence.profile is Profile.CONTINUOUS
    )


def _awaits_first_hop(slot: StreamSlot) -> bool:
    return _begins(slot) and not slot.cancelled and slot.missing_tokens() > 0


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
        if item.playing and item.by < done and now + _seconds(blocks, widest, costs) < item.by:
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
        return _blocks(self.slot, 0, self.step_input) if self.step_input.state.recomputing else self.pending.blocks


def is_late(slot: StreamSlot, now: float, step_seconds: float) -> bool:
    """Whether the caller of a stream has given up or, if more has to be decoded, will within a
    step.
    """
    deadline = slot.sentence.deadline
    return deadline is not None and now >= deadline - (0.0 if slot.is_decoded else step_seconds)


class NextStep:
    """Guarded by the batcher's lock. batches: whether some decoder takes several streams in a
    step.
    """

    def __init__(self, costs: StepCosts, budget: Budget, *, batches: bool) -> None:
        self._costs, self._budget, self._batches = costs, budget, batches
        self.first_hops = FirstHopForecast()
        self.wait_seconds: float | None = None
        """After which `of` has to be asked again, if nothing changes before: it has left work
        waiting for a first hop.
        """

    def of(self, slots: Sequence[StreamSlot], now: float) -> list[ScheduledWork]:
        """Streams of one decoder, at most as many as a step takes; empty if all have to wait.
        slots: oldest first.
        """
        self.wait_seconds = None
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
        chosen = works[: admitted([work.pending for work in works], now, self._costs, decoder.widest_step)]
        if self._batches and len(works) <= FEW and all(work.pending.playing for work in works):
            step_seconds = self._costs.typical(sum(work.pending.blocks for work in chosen))
            if works[0].pending.by >= now + step_seconds + AMPLE_SECONDS:
                self.wait_seconds = self.first_hops.wait(slots, step_seconds, now)
        return chosen if self.wait_seconds is None else []

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
            slot, step_input, PendingBlocks(_blocks(slot, step_input.state.position, step_input), by, slot.is_playing)
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


def _blocks(slot: StreamSlot, position: int, step_input: StepInput[StreamState]) -> int:
    """Grid blocks from `position` to the end of the input; all blocks for a stream that is
    recomputed.
    """
    return slot.schedule.blocks(0 if step_input.state.recomputing else position, step_input.until)
