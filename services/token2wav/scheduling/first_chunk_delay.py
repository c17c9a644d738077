"""A first piece may be so short that its player would run dry before the second is made: then it
waits until that is no longer so.

Nothing is computed later for it, and no sample changes; only the moment at which sound that is
finished is handed out. A piece lasts as long as can be heard of it
(`services.token2wav.scheduling.stream_slot.StreamSlot.held_seconds`), as leading silence may not be
played.
"""

import math
from collections.abc import Sequence

from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.forecast_errors import ForecastErrors
from services.token2wav.scheduling.next_step import ScheduledWork
from services.token2wav.scheduling.second_chunk_forecast import SecondChunkForecast
from services.token2wav.scheduling.step_costs import StepCosts
from services.token2wav.scheduling.stream_slot import StreamSlot
from services.token2wav.scheduling.token_pace import TokenPace

HOLD_SECONDS = 0.5
"""Longest wait of a first piece unless a setting says otherwise, in an engine whose steps take
several streams.
"""
SINGLE_HOLD_SECONDS = 2.0
"""The same in an engine that takes one stream at a time, where the second piece comes behind the
steps of others.
"""
LONGEST_HOLD_SECONDS = 5.0
"""Most that a setting may say."""
MARGIN_SECONDS = 0.0075
"""By which the second piece should be made before the first has been played, times the root of how
many streams there are on all replicas: its way to the player is longer where many speak, and all
speak through one orchestrator. Seen on an H200 (`python -m bench.gpu --part closed`): 0.042 s are
enough for 32 streams, 0.04 for 64, 0.08 for 128; 0.026 for 32 and 0.04 for 128 are not. With two
replicas and the margin of the 32 streams of each, 1 % of the players of 64 ran dry (`python -m
bench.token2wav_schedule --replicas 2`)."""
SINGLE_MARGIN_SECONDS = 0.015
"""The same in an engine of single steps, beyond the worst of its latest forecasts, for a stream
that is alone.
"""
CROWD_MARGIN_SECONDS = 0.04
"""And for each further stream: whose steps come in between is decided later. With 0.015 for any
number five of 200 players that keep 40 ms ran dry for up to 86 ms at four streams on two cores
(`python -m bench.gaps`)."""
LOOK_AGAIN_SECONDS = 0.005
"""What is late is looked at no more often than that."""


class FirstChunkDelay:
    """longest: seconds that a first piece waits at most; 0: none waits; None: as suits an engine
    whose steps take several streams (`batches`) or one."""

    def __init__(self, longest: float | None, costs: StepCosts, pace: TokenPace, *, batches: bool) -> None:
        by_engine = HOLD_SECONDS if batches else SINGLE_HOLD_SECONDS
        self._longest = by_engine if longest is None else longest
        self._costs, self._pace = costs, pace
        self._second = SecondChunkForecast(costs, pace)
        self._errors = ForecastErrors()

    def applies(self, slot: StreamSlot) -> bool:
        """Whether the finished sound of this stream may wait at all: not when its listener hears
        something already (it was resumed, or is a later sentence of its request)."""
        return self._longest > 0 and slot.sentence.profile is Profile.CONTINUOUS and not slot.is_heard

    def may_hold(self, slot: StreamSlot) -> bool:
        """Whether sound of `slot` that has just been finished may wait. A whole sentence in one
        piece does where steps take one stream and the next sentence has been begun: the player may
        have played it before that one sounds."""
        return self.applies(slot) and (not slot.is_spoken or _awaited_follower(slot) is not None)

    def begins(self, works: Sequence[ScheduledWork], now: float) -> None:
        """A step begins now."""
        self._second.begins(works, now)

    def ends(self) -> None:
        """The step is over."""
        self._second.ends()

    def over(self, slots: Sequence[StreamSlot], works: Sequence[ScheduledWork], now: float) -> list[StreamSlot]:
        """Streams whose held sound may go. `works`: the step that begins now, if one does. Nothing
        waits for one of another profile, which may take seconds."""
        blocks, begun = sum(work.due.blocks for work in works), {work.slot for work in works}
        soon = now + self._costs.slow(blocks) + _margin(slots)
        decoder = works[0].slot.decoder if works else None
        return [
            slot
            for slot in slots
            if slot.held is not None
            and not slot.cancelled
            and (
                decoder not in (None, slot.decoder)
                or (_batches(slot) and slot in begun and soon <= now + slot.held_seconds)
                or self._until(slot, slots, now) <= now
            )
        ]

    def soonest(self, slots: Sequence[StreamSlot], now: float) -> float | None:
        """Seconds until it is worth asking again if nothing else happens; None: nothing is held."""
        moments = [self._until(slot, slots, now) for slot in slots if slot.held is not None and not slot.cancelled]
        return max(min(moments) - now, 0.0 if min(moments) <= now else LOOK_AGAIN_SECONDS) if moments else None

    def _until(self, slot: StreamSlot, slots: Sequence[StreamSlot], now: float) -> float:
        """When what is held goes if nothing new is known by then."""
        if not slot.held_seconds or not self.applies(slot) or (slot.held_hops > 1 and _batches(slot)):
            return now
        behind = _awaited_follower(slot) if slot.is_spoken else slot
        if behind is None:
            return now
        missing, last = behind.missing_tokens(), slot.held_since + self._longest
        if not self._costs.known or (missing and not self._pace.known):
            return last  # of a first request, and safe
        if not _batches(slot):
            return self._until_single(slot, behind, slots, now)
        # What has yet to come comes while some step is under way and goes with the one after it;
        # what is there may not fit into the next.
        there = max(now, (slot.fed or now) + missing * self._pace.expected) if missing else now
        until = there + self._costs.two_more + _margin(slots) - slot.held_seconds
        if until <= now or until > last:  # the second piece comes in time, or waiting cannot help
            return now
        # overdue: released when tokens or a step change the forecast
        return until if there > now else last

    def _until_single(self, slot: StreamSlot, behind: StreamSlot, slots: Sequence[StreamSlot], now: float) -> float:
        """In an engine of single steps, by a forecast and by how wrong forecasts were. behind: the
        stream that makes the next piece.
        """
        last, streams = slot.held_since + self._longest, len(slots)
        made = self._second.expected(behind, slots, now)
        until = made + self._errors.worst(streams, made - now) + _single_margin(streams) - slot.held_seconds
        if until > now:
            return min(until, last)
        if behind.awaited is None:
            behind.awaited = lambda at: self._errors.add(streams, at - made)
        return now


def _awaited_follower(slot: StreamSlot) -> StreamSlot | None:
    """The stream of the next sentence, in an engine that takes one stream at a time, if some of its
    tokens are there: text that somebody is still writing is not waited for."""
    behind = slot.followed_by
    return None if behind is None or behind.over or behind.fed is None or _batches(slot) else behind


def _batches(slot: StreamSlot) -> bool:
    return slot.decoder.widest_step > 1


def _single_margin(streams: int) -> float:
    return SINGLE_MARGIN_SECONDS + CROWD_MARGIN_SECONDS * (streams - 1)


def _margin(slots: Sequence[StreamSlot]) -> float:
    """slots: in the order in which they were opened; what the latest setup says of the caller holds
    for all.
    """
    told = slots[-1].sentence.caller_streams if slots else 0
    return MARGIN_SECONDS * math.sqrt(max(len(slots), told))
