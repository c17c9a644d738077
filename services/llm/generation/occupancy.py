"""How full an engine for speech tokens is, and the places in front of one that has no queue of its
own.
"""

import asyncio
import time
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True)
class Occupancy:
    """Sentences that run and that wait for a place, without those that wait for their text; the
    places; how many are accepted in all; and for how many seconds the first of those that wait has
    waited, 0 if none does.
    """

    running: int
    waiting: int
    places: int
    accepted: int
    oldest: float


class Places:
    """A semaphore that says who holds it and who waits. accepted: how many may do either. Used by
    one event loop; `occupancy` may be asked in any thread.
    """

    def __init__(self, count: int, accepted: int) -> None:
        self._count, self._accepted, self._free = count, accepted, asyncio.Semaphore(count)
        self._taken = 0
        self._waiting: dict[object, float] = {}

    async def acquire(self) -> None:
        """Wait for a place, in turn."""
        turn = object()
        self._waiting[turn] = time.monotonic()
        try:
            await self._free.acquire()
        finally:
            del self._waiting[turn]
        self._taken += 1

    def release(self) -> None:
        """Leave the place."""
        self._taken -= 1
        self._free.release()

    @property
    def occupancy(self) -> Occupancy:
        """As of now."""
        waiting = list(self._waiting.values())
        oldest = time.monotonic() - min(waiting) if waiting else 0.0
        return Occupancy(self._taken, len(waiting), self._count, self._accepted, oldest)

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
