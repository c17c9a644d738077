"""Computes how many requests are admitted: as many as the stages can serve in time by their
measured load, reduced when players run dry.

A stage serves as many streams as the real-time factors of its replicas allow; the slowest stage
decides, and a share is left free. The factors are measured at the current load. What they do not
show, such as processes that compete for cores, appears as late pieces of sound: the limit then
falls below the number of running requests, and rises again by one stream at a time.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from cosyserve.engines.engine_load import Load
from services.orchestrator.load_control.admission import Admission

log = logging.getLogger(__name__)
USED_SHARE = 0.85
"""Share of the capacity of the slowest stage that is used; the rest absorbs variation, such as
sentences of different lengths and requests that begin together.
"""
SHARED_BACK_OFF, SHARED_RECOVERY = 0.8, 0.05
"""Shares of a limit of streams that share steps: what is left of it when pieces are late, and by
what it rises again in each SHARED_RECOVER_SECONDS without. There may be hundreds of them, and one
more or less changes nothing.
"""
SHARED_CROWD = 32
"""From so many requests at once on their number says what was too much. With fewer the limit is at
most halved.
"""
SHARED_RECOVER_SECONDS = 3.0
BACK_OFF_SECONDS = 3.0
"""Shortest time between two reductions of the limit: pieces stay late for some time."""
RECOVER_SECONDS = 15.0
"""After each such period without a late piece the limit rises by one."""
LATE_SHARE = 0.01
"""Share of the pieces since the last report that may be late by chance."""
LEAST_LATE = 2
"""Fewest late pieces that count: a single one may be caused by another program."""
LEAST_SECONDS = 1.0
"""Shortest time between two rounds of queries."""


@dataclass(frozen=True)
class StageLoad:
    """The measured load of one replica."""

    stage: str
    """Name of the stage."""
    replica: str
    """Distinguishes the replica from others of the stage, such as its address."""
    load: Load | None
    """None for a replica that serves and has not generated speech yet."""
    shares_steps: bool = False
    """Whether its streams share the steps of the engine, as on a GPU: what one of them costs says
    nothing about many, so that only late pieces count.
    """


class AdaptiveLimit:
    """most: upper bound of the limit, at least 1. Times are seconds of one monotonic clock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: dict[tuple[str, str], Load] = {}
        self._seen_shared: dict[tuple[str, str], Load] = {}
        self._shared, self._shared_changed_at = most, -math.inf
        self._backed_off: int | None = None
        """The limit after reductions by late pieces; None: not reduced."""
        self._changed_at = -math.inf

    def of(self, loads: Sequence[StageLoad], active: int, now: float) -> int:
        """The limit from now on. loads: of all replicas that report one; none: the upper bound
        applies. active: most requests running at once since the last call.
        """
        alone = [one for one in loads if not one.shares_steps]
        shared = [one for one in loads if one.shares_steps]
        limit = self._of_shared(shared, active, now) if shared else self._most
        return min(limit, self._of_measured(alone, active, now)) if alone else limit

    def _of_shared(self, loads: Sequence[StageLoad], active: int, now: float) -> int:
        pieces, late = _since_last(self._seen_shared, loads)
        waited = now - self._shared_changed_at
        if late >= LEAST_LATE and late > LATE_SHARE * pieces:
            # Those under way are late still, for seconds; short sentences less long than others.
            if waited >= BACK_OFF_SECONDS:
                # A quiet moment is no measure of what can be served.
                least = 1 if active >= SHARED_CROWD else self._shared // 2
                self._shared = max(math.floor(SHARED_BACK_OFF * min(self._shared, active)), least, 1)
                self._shared_changed_at = now
        elif self._shared < self._most and waited >= SHARED_RECOVER_SECONDS:
            for _ in range(int(waited // SHARED_RECOVER_SECONDS)):
                self._shared = min(self._shared + max(math.floor(SHARED_RECOVERY * self._shared), 1), self._most)
            self._shared_changed_at = now
        return self._shared

    def _of_measured(self, loads: Sequence[StageLoad], active: int, now: float) -> int:
        measured = self._measured(loads)
        pieces, late = _since_last(self._seen, loads)
        if late >= LEAST_LATE and late > LATE_SHARE * pieces and now - self._changed_at >= BACK_OFF_SECONDS:
            before = measured if self._backed_off is None else min(self._backed_off, measured)
            # At most halved: with few running requests, their number says little about the
            # capacity.
            self._backed_off, self._changed_at = max(min(before, active) - 1, before // 2, 1), now
        elif self._backed_off is not None and now - self._changed_at >= RECOVER_SECONDS:
            # Without requests this is not called: that time counts as well.
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
        # A replica without measurements counts like the others of its stage: a limit without it
        # might keep it from ever getting a request.
        able = [math.floor(USED_SHARE * (replicas[stage] * fmean(each))) for stage, each in streams.items()]
        return max(min([self._most, *able]), 1)


def _since_last(seen: dict[tuple[str, str], Load], loads: Sequence[StageLoad]) -> tuple[int, int]:
    """Pieces, and late pieces, since the last call, whose loads `seen` holds; none of a replica
    that is new or was restarted.
    """
    pieces = late = 0
    now = {(one.stage, one.replica): one.load for one in loads if one.load is not None}
    for replica, load in now.items():
        before = seen.get(replica)
        if before is not None and before.pieces <= load.pieces:
            pieces, late = pieces + load.pieces - before.pieces, late + load.late_pieces - before.late_pieces
    seen.clear()
    seen.update(now)
    return pieces, late


class LimitUpdater:
    """Keeps the admission limit up to date: asks the stages for their load when requests begin and
    end, not while nothing happens. Run `run` in a task of its own; `changed` triggers a round.
    least_seconds: shortest time between two rounds.
    """

    def __init__(
        self,
        admission: Admission,
        ask: Callable[[], Awaitable[Sequence[StageLoad]]],
        least_seconds: float = LEAST_SECONDS,
    ) -> None:
        self._admission, self._ask, self._least_seconds = admission, ask, least_seconds
        self._limit = AdaptiveLimit(admission.limit)
        self._most_active = 0
        """Most requests running at once since the last round: the requests that were late may have
        ended before the query.
        """
        self._changed = asyncio.Event()
        admission.changed = self.changed

    def changed(self) -> None:
        """A request began, ended or was refused, or a stage may have come up."""
        self._most_active = max(self._most_active, self._admission.active)
        self._changed.set()

    async def run(self) -> None:
        """Query the stages and set the limit whenever something has changed, until cancelled. A
        round that fails leaves the limit unchanged.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                loads = await self._ask()
                most_active, self._most_active = self._most_active, self._admission.active
                limit = self._limit.of(loads, most_active, time.monotonic())
            except Exception:
                log.exception("the load of the stages could not be read; the limit stays at %d", self._admission.limit)
                await asyncio.sleep(self._least_seconds)
                continue
            if limit != self._admission.limit:
                log.info(
                    "%d requests are admitted at once, before it were %d (real-time factors: %s)",
                    limit,
                    self._admission.limit,
                    ", ".join(f"{one.stage} at {one.replica}: {_factor(one)}" for one in loads),
                )
                self._admission.limit = limit
            await asyncio.sleep(self._least_seconds)


def _factor(one: StageLoad) -> str:
    return "not measured" if one.load is None else f"{one.load.real_time_factor:.3f}"
