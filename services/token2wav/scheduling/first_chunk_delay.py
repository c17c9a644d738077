"""Holds back a first chunk that is so short that its player would run dry before the second chunk
is ready.

No computation is delayed and no sample changes; only the moment at which finished audio is
delivered. The duration of a chunk counts from its first audible sample
(`services.token2wav.scheduling.stream_slot.StreamSlot.held_seconds`), because players may skip
leading silence.
"""

import math
from collections.abc import Sequence

from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.first_chunk_delay import SecondChunkForecast
from services.token2wav.scheduling.measurements import ForecastErrors, StepCosts, TokenPace
from services.token2wav.scheduling.next_step import ScheduledWork
from services.token2wav.scheduling.stream_slot import StreamSlot

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
86 ms at four streams on two cores (`python -m bench.gaps`).
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
        self._second = SecondChunkForecast(costs, pace)
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

    def begins(self, works: Sequence[ScheduledWork], now: float) -> None:
        """A step begins now."""
        self._second.begins(works, now)

    def ends(self) -> None:
        """The step has ended."""
        self._second.ends()

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
        ready_at = self._second.expected(behind, slots, now)
        until = (
            ready_at + self._errors.worst(streams, ready_at - now) + _single_step_margin(streams) - slot.held_seconds
        )
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


def _single_step_margin(streams: int) -> float:
    return SINGLE_MARGIN_SECONDS + CROWD_MARGIN_SECONDS * (streams - 1)


def _margin(slots: Sequence[StreamSlot]) -> float:
    """slots: in the order in which they were opened; the number of streams in the latest setup
    applies to all.
    """
    caller_streams = slots[-1].sentence.caller_streams if slots else 0
    return MARGIN_SECONDS * math.sqrt(max(len(slots), caller_streams))
