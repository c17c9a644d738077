"""Keeps the limit of requests up to date: asks the stages what speech costs them when requests come
and go, not when nothing happens.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from services.orchestrator.load_control.adaptive_limit import AdaptiveLimit, StageLoad
from services.orchestrator.load_control.admission import Admission

log = logging.getLogger(__name__)
LEAST_SECONDS = 1.0
"""Between two rounds of asking."""
Ask = Callable[[], Awaitable[Sequence[StageLoad]]]


class LimitUpdater:
    """Call `run` in a task of its own; `changed` says that it is worth asking. least_seconds:
    between two rounds.
    """

    def __init__(self, admission: Admission, ask: Ask, least_seconds: float = LEAST_SECONDS) -> None:
        self._admission, self._ask, self._least_seconds = admission, ask, least_seconds
        self._limit = AdaptiveLimit(admission.limit)
        self._most_active = 0
        """Requests under way at once since the last round: what was late may have been over before
        it was asked about.
        """
        self._changed = asyncio.Event()
        admission.changed = self.changed

    def changed(self) -> None:
        """A request begins, ends or was refused, or a stage may have come up."""
        self._most_active = max(self._most_active, self._admission.active)
        self._changed.set()

    async def run(self) -> None:
        """Ask and set the limit whenever something has changed, until cancelled. A round that fails
        leaves the limit as it is.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                loads = await self._ask()
                most_active, self._most_active = self._most_active, self._admission.active
                limit = self._limit.of(loads, most_active, time.monotonic())
            except Exception:
                log.exception(
                    "what speech costs the stages could not be found out; the limit stays at %d", self._admission.limit
                )
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
