"""How many requests are admitted: as many as the stages can speak in time, by what they measure,
corrected when players run dry.

A stage speaks as many streams as its replicas' real-time factors allow, the slowest stage decides,
and a share of that is left free. The factors are measured at the load that there is; what they do
not show, such as processes that take each other's cores, is learnt from pieces that come too late:
the limit then falls below those under way, and rises again by one stream at a time.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from cosyserve.engines.engine_load import Load

USED_SHARE = 0.85
"""Of what the slowest stage can do: the rest is for what is unequal, as sentences of different
lengths and requests that begin together.
"""
BACK_OFF_SECONDS = 3.0
"""The limit falls no more often than that: what was late before is late for some time."""
RECOVER_SECONDS = 15.0
"""For each of them without a late piece one more is admitted."""
LATE_SHARE = 0.01
"""Of the pieces since the last report: some may be late by chance, where there are many."""
LEAST_LATE = 2
"""A single late piece may be another program's doing."""


@dataclass(frozen=True)
class StageLoad:
    """stage: its name. replica: what tells this process from others of the stage. load: None for
    one that serves and has spoken nothing.
    """

    stage: str
    replica: str
    load: Load | None


class AdaptiveLimit:
    """most: upper bound of the limit, at least 1. Moments are seconds of one clock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: dict[tuple[str, str], Load] = {}
        self._backed_off: int | None = None
        """What late pieces have left of the limit."""
        self._changed_at = -math.inf

    def of(self, loads: Sequence[StageLoad], active: int, now: float) -> int:
        """The limit from now on. loads: of all replicas that tell theirs, none: the upper bound.
        active: most requests under way at once since the last call."""
        measured = self._measured(loads)
        pieces, late = self._since_last(loads)
        if late >= LEAST_LATE and late > LATE_SHARE * pieces and now - self._changed_at >= BACK_OFF_SECONDS:
            before = measured if self._backed_off is None else min(self._backed_off, measured)
            # At most halved: with few requests under way, their number says little of how many
            # could be.
            self._backed_off, self._changed_at = max(min(before, active) - 1, before // 2, 1), now
        elif self._backed_off is not None and now - self._changed_at >= RECOVER_SECONDS:
            # Nobody asks while there are no requests: that time counts, too.
            steps = int((now - self._changed_at) // RECOVER_SECONDS)
            self._backed_off, self._changed_at = self._backed_off + steps, self._changed_at + steps * RECOVER_SECONDS
        if self._backed_off is not None and self._backed_off >= measured:
            self._backed_off = None
        return measured if self._backed_off is None else self._backed_off

    def _measured(self, loads: Sequence[StageLoad]) -> int:
        replicas = Counter(one.stage for one in loads)
        streams: dict[str, list[float]] = {}
        for one in loads:
            if one.load is not None:
                streams.setdefault(one.stage, []).append(1 / one.load.real_time_factor)
        # A replica that has spoken nothing counts as the others of its stage do: a limit without it
        # might keep it from ever speaking.
        able = (replicas[stage] * fmean(each) for stage, each in streams.items())
        return max(min([self._most, *(math.floor(USED_SHARE * each) for each in able)]), 1)

    def _since_last(self, loads: Sequence[StageLoad]) -> tuple[int, int]:
        """Pieces, and late ones, since the last call; nothing of a replica that is new or has begun
        anew.
        """
        pieces = late = 0
        now = {(one.stage, one.replica): one.load for one in loads if one.load is not None}
        for replica, load in now.items():
            before = self._seen.get(replica)
            if before is not None and before.pieces <= load.pieces:
                pieces, late = pieces + load.pieces - before.pieces, late + load.late_pieces - before.late_pieces
        self._seen = now
        return pieces, late
