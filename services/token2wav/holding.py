"""A first piece may be so short that its player would run dry before the second is made: then it waits until that is no longer so.

Nothing is computed later for it, and no sample changes; only the moment at which sound that is finished is handed out. A stream that is
alone never waits.
"""

import math
from collections.abc import Sequence

from services.token2wav.lane import Lane
from services.token2wav.next_step import Work
from services.token2wav.request import Profile
from services.token2wav.step_costs import StepCosts
from services.token2wav.token_pace import TokenPace

HOLD_SECONDS = 0.5
"""Longest wait of a first piece unless a setting says otherwise."""
LONGEST_HOLD_SECONDS = 5.0
"""Most that a setting may say."""
MARGIN_SECONDS = 0.0075
"""By which the second piece should be made before the first has been played, times the root of how many streams there are: its way to the
player is longer where many speak. Seen on an H200 (`python -m bench.gpu --part closed`): 0.042 s are enough for 32 streams, 0.04 for 64,
0.08 for 128; 0.026 for 32 and 0.04 for 128 are not."""


class Holding:
    """longest: seconds that a first piece waits at most; 0: none waits."""

    def __init__(self, longest: float, costs: StepCosts, pace: TokenPace) -> None:
        self._longest, self._costs, self._pace = longest, costs, pace

    def applies(self, lane: Lane) -> bool:
        """Whether the finished sound of this stream may wait at all.

        Not when its listener hears something already (it was resumed, or is a later sentence of its request), not where the caller has
        said how hops follow each other, and not in an engine that takes one stream at a time.
        """
        sentence = lane.sentence
        return (
            self._longest > 0
            and lane.decoder.widest_step > 1
            and sentence.profile is Profile.CONTINUOUS
            and sentence.hops.growth is None
            and sentence.sentence_index == 0
            and sentence.start_sample == 0
            and not lane.has_sound
        )

    def over(self, lanes: Sequence[Lane], works: Sequence[Work], now: float) -> list[Lane]:
        """Streams whose held sound may go. `works`: the step that begins now, if one does. Nothing waits for one of another profile, which
        may take seconds."""
        blocks, begun = sum(work.due.blocks for work in works), {work.lane for work in works}
        soon = now + self._costs.slow(blocks) + _margin(len(lanes))
        alone, decoder = len(lanes) == 1, works[0].lane.decoder if works else None
        return [
            lane
            for lane in lanes
            if lane.held is not None
            and not lane.cancelled
            and (
                alone
                or decoder not in (None, lane.decoder)
                or (lane in begun and soon <= now + lane.held_seconds)
                or self._until(lane, now, len(lanes)) <= now
            )
        ]

    def soonest(self, lanes: Sequence[Lane], now: float) -> float | None:
        """Seconds until it is worth asking again if nothing else happens; None: nothing is held."""
        moments = [self._until(lane, now, len(lanes)) for lane in lanes if lane.held is not None and not lane.cancelled]
        return max(min(moments) - now, 0.0) if moments else None

    def _until(self, lane: Lane, now: float, streams: int) -> float:
        """When what is held goes if nothing new is known by then."""
        if lane.held_hops > 1 or not lane.held_seconds or not self.applies(lane):
            return now
        missing, last = lane.missing_tokens(), lane.held_since + self._longest
        # What has yet to come comes while some step is under way and goes with the one after it; what is there may not fit into the next.
        there = max(now, (lane.fed or now) + missing * self._pace.expected) if missing else now
        until = there + self._costs.two_more + _margin(streams) - lane.held_seconds
        if until <= now or until > last:  # in time, or in vain
            return now
        return until if there > now else last  # overdue: only news can help


def _margin(streams: int) -> float:
    return MARGIN_SECONDS * math.sqrt(streams)
