"""How many first messages a server receives at once, before anything of them is known.

A read that has begun lets its caller send a whole message, and holds what came of it. So calls take
turns at reading: a message that has arrived is read in a millisecond, and a call that keeps others
waiting without completing its message loses the turn, the sooner the more calls wait. Whether a
caller has sent anything is known only by reading.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

from cosyserve.errors import CosyserveError, DeadlineExceeded, Overloaded
from cosyserve.rpc.fair_queue import FairQueue
from cosyserve.rpc.peers import host_of

UNDISTURBED_SECONDS: Final = 1.0
"""A call whose message is not complete after this long loses its turn as soon as another call waits
for one.
"""
_LEAST_UNDISTURBED_SECONDS: Final = 0.05
"""However many calls wait: a message that has arrived is read in this time on a busy machine,
too.
"""
_LINE_SECONDS: Final = 0.5
"""Turns are made so short that all calls that wait are read in this time, as far as
`_LEAST_UNDISTURBED_SECONDS` allows it.
"""
_MOST_WAITING: Final = 1024
_RETRY_SECONDS: Final = 1.0


class Turn:
    """The right to receive one message, of a caller at `host`, since `begun` (event loop time).
    lost: set when it is taken back, because of `reason`."""

    def __init__(self, host: str, begun: float) -> None:
        self.host = host
        self.begun = begun
        self.lost = asyncio.Event()
        self.reason: CosyserveError | None = None

    def take_back(self, reason: CosyserveError) -> None:
        self.reason = reason
        self.lost.set()


class FirstMessageLimit:
    """Made and used inside one event loop. limit: messages received at once. seconds: for one
    message, the wait for its turn included. undisturbed: seconds that a turn lasts at least while
    no more calls wait than can be read soon."""

    def __init__(self, limit: int, seconds: float, undisturbed: float = UNDISTURBED_SECONDS) -> None:
        self.seconds = seconds
        self._limit = limit
        self._undisturbed = undisturbed
        self._turns: dict[Turn, None] = {}
        self._queue: FairQueue[asyncio.Future[Turn]] = FairQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._refusal: Callable[[], CosyserveError] | None = None

    @property
    def receiving(self) -> int:
        """Messages that are being received."""
        return len(self._turns)

    def close(self, refusal: Callable[[], CosyserveError]) -> None:
        """Take every turn back and refuse all calls that wait, and all that come, with an error
        that `refusal` makes.
        """
        self._refusal = refusal
        for turn in self._turns:
            turn.take_back(refusal())
        self._turns.clear()
        while self._queue:
            _, given = self._queue.next()
            if not given.done():
                given.set_exception(refusal())
        self._give()

    @contextlib.asynccontextmanager
    async def turn(self, peer: str) -> AsyncIterator[Turn]:
        """A turn while the block runs; its holder has to leave when it is lost. Hosts take turns,
        and so do the connections of a host; a turn is taken back from one of the hosts that hold
        the most.

        peer: the caller as gRPC names it, e.g. `ipv4:10.1.2.3:50123`. Raises Overloaded when 1024
        calls wait and the caller's host and connection have the most of them, DeadlineExceeded when
        no turn came in `seconds`, the refusal when closed.
        """
        if self._refusal is not None:
            raise self._refusal()
        free = len(self._turns) < self._limit and not self._queue
        turn = self._begin(host_of(peer)) if free else await self._next(peer)
        try:
            yield turn
        finally:
            self._turns.pop(turn, None)
            self._give()

    def _begin(self, host: str) -> Turn:
        turn = Turn(host, asyncio.get_running_loop().time())
        self._turns[turn] = None
        return turn

    async def _next(self, peer: str) -> Turn:
        host = host_of(peer)
        given: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._queue.add(host, peer, given)
        if len(self._queue) > _MOST_WAITING:
            refused = self._queue.newest_of_the_most()
            if not refused.done():
                refused.set_exception(Overloaded(f"{_MOST_WAITING} calls wait to be read", retry_after=_RETRY_SECONDS))
        self._give()
        try:
            async with asyncio.timeout(self.seconds):
                return await given
        except BaseException as error:
            if given.done() and not given.cancelled() and given.exception() is None:
                # The turn was given in the moment in which its caller left.
                self._turns.pop(given.result(), None)
                self._give()
            else:
                self._queue.remove(host, peer, given)
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(
                    f"the first message was not read in {self.seconds:g} s: too many others are being sent"
                ) from error
            raise

    def _give(self) -> None:
        """Hand out the turns that are free or overdue; come back when the next one is overdue."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._queue:
            if len(self._turns) >= self._limit:
                oldest = self._oldest_of_the_most()
                overdue = oldest.begun + self._undisturbed_now()
                if overdue > loop.time():
                    self._timer = loop.call_at(overdue, self._give)
                    return
                del self._turns[oldest]
                late = "the first message was not complete when other calls had to be read"
                oldest.take_back(Overloaded(late, retry_after=_RETRY_SECONDS))
            host, given = self._queue.next()
            if not given.done():
                given.set_result(self._begin(host))

    def _oldest_of_the_most(self) -> Turn:
        """Of the hosts that hold the most turns the one that began first."""
        held = Counter(turn.host for turn in self._turns)
        most = max(held.values())
        return next(turn for turn in self._turns if held[turn.host] == most)

    def _undisturbed_now(self) -> float:
        return min(self._undisturbed, max(_LEAST_UNDISTURBED_SECONDS, _LINE_SECONDS * self._limit / len(self._queue)))
