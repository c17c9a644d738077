"""Which replicas the orchestrator of a stack takes for serving, as its log says."""

import asyncio
import collections
import re
from collections.abc import Callable

from cosyserve.tasks import Changes

_CHANGE = re.compile(r"\b(?P<stage>\w+) at (?P<target>\S+) is (?P<state>serving|not serving)$")


class Roster:
    """To be given to `local_deployment` as its log. A process that serves is of no use to a test
    before the orchestrator knows it: until then calls go to the other replica, and the one
    that the test kills is idle."""

    def __init__(self) -> None:
        self._serving: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
        self._losses: collections.Counter[str] = collections.Counter()
        self._changes = Changes()

    def __call__(self, line: str) -> None:
        """Take one line of a child's output."""
        if not line.startswith("orchestrator") or (change := _CHANGE.search(line)) is None:
            return
        if change["state"] == "serving":
            self._serving[change["stage"]].add(change["target"])
        else:
            self._serving[change["stage"]].discard(change["target"])
            self._losses[change["stage"]] += 1
        self._changes.notify()

    async def complete(self, **replicas: int) -> None:
        """Return when as many replicas of each named stage are known to serve. Raises TimeoutError
        after a minute.
        """
        await self._until(lambda: all(len(self._serving[stage]) >= wanted for stage, wanted in replicas.items()))

    async def lost(self, stage: str) -> None:
        """Return when the orchestrator has lost a replica of `stage` since the last call of
        `returned`, as `returned` waits.
        """
        await self._until(lambda: self._losses[stage] > 0)

    async def returned(self, stage: str, *, replicas: int = 2) -> None:
        """Return when the orchestrator has lost a replica of `stage` since the last call and knows
        as many as `replicas` again. Raises TimeoutError after a minute."""
        await self._until(lambda: self._losses[stage] > 0)
        self._losses[stage] = 0
        await self.complete(**{stage: replicas})

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            await self._changes.wait_for(reached)
