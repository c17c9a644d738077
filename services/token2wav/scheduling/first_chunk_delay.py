"""Holds back a first chunk that is so short that its player would run dry before the second chunk
is ready, and delivers finished audio as soon as it need not be held back any longer.

No computation is delayed and no sample changes; only the moment at which finished audio is
delivered. Of a chunk counts what a player has of it at once, without silence in front, and without
silence at its end that the caller keeps back (`services.token2wav.scheduling.playing_time`).
"""

import math
import threading
from collections.abc import Callable, Sequence

from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.measurements import Clock, ForecastErrors, StepCosts, TokenPace
from services.token2wav.scheduling.next_step import ScheduledWork
from services.token2wav.scheduling.stream_slot import StreamSlot


class SecondChunkForecast:
    """When the chunk after the first will be ready, in an engine that decodes one stream per step:
    the sum of what comes before it, which is the step in progress, missing tokens, and the steps of
    streams that go first.

    Guarded by the batcher's lock; moments and seconds of its clock. costs: of single steps that
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
        return slot.schedule.blocks(prompt + begin, prompt + end) * self._costs.typical(1)

    def _goes_first(self, other: StreamSlot, slot: StreamSlot, slots: Sequence[StreamSlot], now: float) -> bool:
        """Whether a step of `other` may come before the next one of `slot`, see
        `services.token2wav.scheduling.next_step`.
        """
        if other is self._in_step or other.is_decoded or other.missing_tokens() > 0:
            return False
        if not other.is_playing and other.follows is None:
            return (other.waiting_since or now) <= (slot.waiting_since or now)
        return other.plays_until < now + (len(slots) + 1) * self._costs.typical(1)


HOLD_SECONDS = 0.5
"""Default for the longest delay of a first chunk in an engine whose steps batch several streams."""
SINGLE_HOLD_SECONDS = 2.0
"""The same in an engine that decodes one stream per step, where the second chunk waits for the
steps of other streams.
"""
LONGEST_HOLD_SECONDS = 5.0
"""Maximum value of the setting."""
MARGIN_SECONDS = 0.0075
"""Time by which the second chunk should be ready before the first has been played, times the square
root of the number of streams on all replicas: with many streams the way to the player takes longer,
because all share one orchestrator.

Measured on an H200 (`python -m bench.gpu --part closed`): 0.042 s are enough for 32 streams, 0.04
for 64, 0.08 for 128; 0.026 for 32 and 0.04 for 128 are not. With two replicas and the margin of the
32 streams of each, 1 % of the players of 64 ran dry (`python -m bench.token2wav_schedule --replicas
2`).
"""
SINGLE_MARGIN_SECONDS = 0.015
"""The same in an engine of single steps for a stream that is alone, in addition to the worst of its
latest forecast errors.
"""
CROWD_MARGIN_SECONDS = 0.04
"""Additional margin for each further stream, because the steps that come in between are chosen
later. With 0.015 for any number of streams, five of 200 players that buffer 40 ms ran dry for up to
86 ms at four streams on two cores (`bench.gaps`, last in commit 2683dea2).
"""
LOOK_AGAIN_SECONDS = 0.005
"""Minimum interval between two checks of overdue audio."""


class FirstChunkDelay:
    """longest: maximum delay of a first chunk in seconds; 0: no delay; None: the default for an
    engine whose steps batch several streams (`batches`) or decode one.
    """

    def __init__(self, longest: float | None, costs: StepCosts, pace: TokenPace, *, batches: bool) -> None:
        by_engine = HOLD_SECONDS if batches else SINGLE_HOLD_SECONDS
        self._longest = by_engine if longest is None else longest
        self._costs, self._pace = costs, pace
        self.second = SecondChunkForecast(costs, pace)
        self._errors = ForecastErrors()

    def applies(self, slot: StreamSlot) -> bool:
        """Whether finished audio of this stream may be held at all. Not if its listener already
        hears something, because the stream was resumed or is a later sentence of its request.
        """
        return self._longest > 0 and slot.sentence.profile is Profile.CONTINUOUS and not slot.is_heard

    def may_hold(self, slot: StreamSlot) -> bool:
        """Whether audio of `slot` that has just been finished may be held. A whole sentence in one
        chunk may be held if steps decode one stream and the next sentence has begun, because the
        player may have played it before that one gives audio.
        """
        return self.applies(slot) and (not slot.is_decoded or _awaited_follower(slot) is not None)

    def over(self, slots: Sequence[StreamSlot], works: Sequence[ScheduledWork], now: float) -> list[StreamSlot]:
        """Streams whose held audio may be delivered. works: the step that begins now, if there is
        one. Nothing is held during a step of another profile, which may take seconds.
        """
        blocks, in_step = sum(work.pending.blocks for work in works), {work.slot for work in works}
        soon = now + self._costs.slow(blocks) + _margin(slots)
        decoder = works[0].slot.decoder if works else None
        return [
            slot
            for slot in slots
            if slot.held is not None
            and not slot.cancelled
            and (
                decoder not in (None, slot.decoder)
                or (_batches(slot) and slot in in_step and soon <= now + slot.held_seconds)
                or self._until(slot, slots, now) <= now
            )
        ]

    def soonest(self, slots: Sequence[StreamSlot], now: float) -> float | None:
        """Seconds until the next check is useful if nothing else happens; None if nothing is
        held.
        """
        moments = [self._until(slot, slots, now) for slot in slots if slot.held is not None and not slot.cancelled]
        return max(min(moments) - now, 0.0 if min(moments) <= now else LOOK_AGAIN_SECONDS) if moments else None

    def _until(self, slot: StreamSlot, slots: Sequence[StreamSlot], now: float) -> float:
        """The moment at which held audio is delivered if nothing changes before."""
        if not slot.held_seconds or not self.applies(slot) or (slot.held_hops > 1 and _batches(slot)):
            return now
        behind = _awaited_follower(slot) if slot.is_decoded else slot
        if behind is None:
            return now
        missing, last = behind.missing_tokens(), slot.held_since + self._longest
        if not self._costs.known or (missing and not self._pace.known):
            return last  # there are no measurements before the first request; waiting is safe
        if not _batches(slot):
            return self._until_single(slot, behind, slots, now)
        # Tokens that are missing arrive during some step and are decoded in the one after it;
        # blocks whose tokens have arrived may not fit into the next step.
        there = max(now, (slot.tokens_at or now) + missing * self._pace.expected) if missing else now
        until = there + self._costs.two_more + _margin(slots) - slot.held_seconds
        if until <= now or until > last:  # delivered on time already, or waiting cannot help
            return now
        # If the tokens are overdue, a token or a step that changes the forecast releases it.
        return until if there > now else last

    def _until_single(self, slot: StreamSlot, behind: StreamSlot, slots: Sequence[StreamSlot], now: float) -> float:
        """The same in an engine of single steps, from a forecast and its past errors. behind: the
        stream that computes the next chunk.
        """
        last, streams = slot.held_since + self._longest, len(slots)
        margin = SINGLE_MARGIN_SECONDS + CROWD_MARGIN_SECONDS * (streams - 1)
        if now + self._errors.worst(streams, 0.0) + margin - slot.held_seconds >= max(last, now):
            return last  # in such a crowd whatever the forecast, which looks at every stream
        ready_at = self.second.expected(behind, slots, now)
        until = ready_at + self._errors.worst(streams, ready_at - now) + margin - slot.held_seconds
        if until > now:
            return min(until, last)
        if behind.on_next_hop is None:
            behind.on_next_hop = lambda at: self._errors.add(streams, at - ready_at)
        return now


def _awaited_follower(slot: StreamSlot) -> StreamSlot | None:
    """The stream of the next sentence, in an engine that decodes one stream per step, if some of
    its tokens have arrived: text that is still being written is not waited for.
    """
    behind = slot.followed_by
    return None if behind is None or behind.over or behind.tokens_at is None or _batches(slot) else behind


def _batches(slot: StreamSlot) -> bool:
    return slot.decoder.widest_step > 1


def _margin(slots: Sequence[StreamSlot]) -> float:
    """slots: in the order in which they were opened; the number of streams in the latest setup
    applies to all.
    """
    caller_streams = slots[-1].sentence.caller_streams if slots else 0
    return MARGIN_SECONDS * math.sqrt(max(len(slots), caller_streams))


class Delivery:
    """Delivers when a step begins and, in an engine that decodes one stream per step, during a
    step, because that may take longer than a first chunk plays.

    Guarded by `changed`: callers hold it, and the alarm acquires it. slots: all streams, a list
    that the batcher maintains. forget: called with a stream whose last audio was delivered.
    """

    def __init__(
        self,
        first_chunk_delay: FirstChunkDelay,
        clock: Clock,
        changed: threading.Condition,
        slots: Sequence[StreamSlot],
        forget: Callable[[StreamSlot], None],
    ) -> None:
        self._forget = forget
        self.first_chunk_delay, self._clock, self._changed, self._slots = first_chunk_delay, clock, changed, slots
        self._cancel_alarm: Callable[[], None] = lambda: None
        """Cancels the next check of the audio that is held back."""
        self._in_step: Sequence[ScheduledWork] = ()

    def release(self, works: Sequence[ScheduledWork] = ()) -> float | None:
        """Deliver what may go; returns the seconds until more may follow, None if nothing is held
        back. works: the step that begins now, if there is one.
        """
        now = self._clock.now()
        for slot in self.first_chunk_delay.over(self._slots, works, now):
            self.hand_out(slot, now)
        return self.first_chunk_delay.soonest(self._slots, now)

    def begins(self, works: Sequence[ScheduledWork]) -> None:
        """Deliver what may go when this step begins, or before it ends. No works: streams are
        started before the next step.
        """
        if works:
            self.first_chunk_delay.second.begins(works, self._clock.now())
        seconds, self._in_step = self.release(works), works
        if works and works[0].slot.decoder.widest_step == 1:
            self._look_again_after(seconds)

    def ends(self) -> None:
        """The step has ended."""
        self._in_step = ()
        self._cancel_alarm()
        self.first_chunk_delay.second.ends()

    def hand_out(self, slot: StreamSlot, now: float) -> None:
        """Deliver what is held of `slot`, after what is held of the preceding sentence."""
        if slot.follows is not None and slot.follows.held is not None and slot.follows.is_decoded:
            self.hand_out(slot.follows, now)
        hop = slot.hand_out(now)
        if hop.last:
            self._forget(slot)
        slot.deliver(hop)

    def _look_again_after(self, seconds: float | None) -> None:
        if seconds is None:
            return
        step = self._in_step

        def look_again() -> None:
            with self._changed:
                if self._in_step is step:
                    self._look_again_after(self.release())

        self._cancel_alarm = self._clock.after(seconds, look_again)
