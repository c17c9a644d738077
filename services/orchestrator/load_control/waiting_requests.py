"""Requests that wait for a place because other keys hold them all: few, and not for long."""

import asyncio
import time
from dataclasses import dataclass, field

from services.orchestrator.load_control.fair_shares import FairShares, Holder


@dataclass(eq=False)
class _Waiting:
    holder: Holder
    served: "asyncio.Future[bool]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Whether it got a place."""
    since: float = field(default_factory=time.monotonic)


class WaitingRequests:
    """At most as many as there are places, of each key at most its share; a further one takes the
    turn of one that would be served later than itself.
    """

    def __init__(self, shares: FairShares) -> None:
        self._shares = shares
        self._waiting: list[_Waiting] = []
        """In the order in which they came."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest(self) -> float:
        """Seconds that the first one has waited; 0: none waits. May be asked in any thread."""
        first = next(iter(self._waiting), None)
        return 0.0 if first is None else time.monotonic() - first.since

    async def wait(self, holder: Holder, seconds: float) -> bool:
        """Whether a place was taken for the request within the time."""
        if seconds <= 0 or holder.waiting >= self._shares.places_of(holder) or not self._has_room_for(holder):
            return False
        one = _Waiting(holder)
        self._waiting.append(one)
        holder.waiting += 1
        try:
            await asyncio.wait((one.served,), timeout=seconds)
        except asyncio.CancelledError:
            if one.served.done() and one.served.result():
                self._shares.leave(holder)
            self._remove(one)
            self.serve()
            raise
        if one.served.done():
            return one.served.result()
        # What is kept for other keys may be free by now.
        self.serve()
        if one.served.done():
            return one.served.result()
        self._remove(one)
        return False

    def serve(self) -> None:
        """Give free places to those who wait, in turn."""
        while able := [one for one in self._waiting if self._shares.has_room(one.holder)]:
            next_one = min(able, key=self._rank)
            self._shares.take(next_one.holder)
            self._end(next_one, served=True)

    def _has_room_for(self, holder: Holder) -> bool:
        if len(self._waiting) < self._shares.limit:
            return True
        last = max(self._waiting, key=self._rank)
        if self._shares.rank(holder, holder.waiting) >= self._rank(last):
            return False
        self._end(last, served=False)
        return True

    def _rank(self, one: _Waiting) -> tuple[int, float]:
        ahead = 0
        for other in self._waiting:
            if other is one:
                break
            ahead += other.holder is one.holder
        return self._shares.rank(one.holder, ahead)

    def _end(self, one: _Waiting, *, served: bool) -> None:
        self._remove(one)
        one.served.set_result(served)

    def _remove(self, one: _Waiting) -> None:
        if one in self._waiting:
            self._waiting.remove(one)
            one.holder.waiting -= 1
