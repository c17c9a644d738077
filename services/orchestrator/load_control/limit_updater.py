"""Keeps the admission limit up to date: asks the stages for their load when requests begin and end,
not while nothing happens.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from services.orchestrator.load_control.adaptive_limit import AdaptiveLimit, StageLoad
from services.orchestrator.load_control.admission import Admission

log = logging.getLogger(__name__)
LEAST_SECONDS = 1.0
"""Shortest time between two rounds of queries."""
Ask = Callable[[], Awaitable[Sequence[StageLoad]]]


class LimitUpdater:
    """Run `run` in a task of its own; `changed` triggers a round of queries. least_seconds:
    shortest time between two rounds.
    """

    def __init__(self, admission: Admission, ask: Ask, least_seconds: float = LEAST_SECONDS) -> None:
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
                factors = ", ".join(f"{one.stage} at {one.replica}: {_factor(one)}" for one in loads)
                log.info(
                    "%d requests are admitted at once, before it were %d (real-time factors: %s)",
                    limit,
                    self._admission.limit,
                    factors,
                )
                self._admission.limit = limit
            await asyncio.sleep(self._least_seconds)


def _factor(one: StageLoad) -> str:
    return "not measured" if one.load is None else f"{one.load.real_time_factor:.3f}"
