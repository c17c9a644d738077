"""Limits how many first messages a server receives at once, before anything about their calls is
known.

A pending read lets its caller send a whole message, and holds its bytes. So calls take turns at
reading: a message that has arrived is read in a millisecond, and a call that keeps others waiting
without completing its message loses its turn, the sooner the more calls wait. Only reading shows
whether a caller has sent anything.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from cosyserve.errors import CosyserveError, DeadlineExceeded, Overloaded
from cosyserve.rpc.peers import host_of

Item = TypeVar("Item")
_Connections = dict[str, deque[Item]]


class FairQueue(Generic[Item]):
    """A host or connection with many items cannot keep the items of others waiting."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Connections[Item]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, host: str, connection: str, item: Item) -> None:
        """Append `item` to those of the same connection."""
        self._hosts.setdefault(host, {}).setdefault(connection, deque()).append(item)
        self._count += 1

    def next(self) -> tuple[str, Item]:
        """Remove and return the next item, with its host; the queue must not be empty."""
        host = next(iter(self._hosts))
        connections = self._hosts.pop(host)
        connection = next(iter(connections))
        items = connections.pop(connection)
        item = items.popleft()
        self._count -= 1
        # The remaining items go to the end of both rotations.
        if items:
            connections[connection] = items
        if connections:
            self._hosts[host] = connections
        return host, item

    def newest_of_the_most(self) -> Item:
        """Remove and return the last item of the connection with the most items, of the host with
        the most; the queue must not be empty.
        """
        host = max(self._hosts, key=lambda name: sum(map(len, self._hosts[name].values())))
        connections = self._hosts[host]
        connection = max(connections, key=lambda name: len(connections[name]))
        item = connections[connection][-1]
        self.remove(host, connection, item)
        return item

    def remove(self, host: str, connection: str, item: Item) -> None:
        """Remove `item` if it is still queued."""
        items = self._hosts.get(host, {}).get(connection, deque())
        if item not in items:
            return
        items.remove(item)
        self._count -= 1
        if not items:
            del self._hosts[host][connection]
        if not self._hosts[host]:
            del self._hosts[host]


UNDISTURBED_SECONDS: Final = 1.0
"""Seconds after which a call without a complete message loses its turn if another call waits."""
_LEAST_UNDISTURBED_SECONDS: Final = 0.05
"""Shortest turn, however many calls wait: a message that has arrived is read in this time on a busy
machine, too.
"""
_LINE_SECONDS: Final = 0.5
"""Turns are shortened so that all waiting calls are read in this time, as far as
`_LEAST_UNDISTURBED_SECONDS` allows it.
"""
_MOST_WAITING: Final = 1024
_RETRY_SECONDS: Final = 1.0


@dataclass(eq=False)
class Turn:
    """The right to receive one message, of a caller at `host`, since `begun` (event loop time).
    lost: done when it is revoked, for `reason`.
    """

    host: str
    begun: float
    lost: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    reason: CosyserveError | None = None

    def take_back(self, reason: CosyserveError) -> None:
        self.reason = reason
        if not self.lost.done():
            self.lost.set_result(None)


class FirstMessageLimit:
    """Use it inside one event loop. limit: messages received at once. seconds: for one message,
    including the wait for its turn. undisturbed: shortest turn in seconds while few calls wait.
    """

    def __init__(self, limit: int, seconds: float, undisturbed: float = UNDISTURBED_SECONDS) -> None:
        self.seconds = seconds
        self._limit = limit
        self._undisturbed = undisturbed
        self.turns: dict[Turn, None] = {}
        """Those of the messages that are being received, the oldest first."""
        self._queue: FairQueue[asyncio.Future[Turn]] = FairQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._refusal: Callable[[], CosyserveError] | None = None

    def close(self, refusal: Callable[[], CosyserveError]) -> None:
        """Revoke every turn and refuse all calls, waiting and new, with an error that `refusal`
        creates.
        """
        self._refusal = refusal
        for turn in self.turns:
            turn.take_back(refusal())
        self.turns.clear()
        while self._queue:
            _, given = self._queue.next()
            if not given.done():
                given.set_exception(refusal())
        self._give()

    @contextlib.asynccontextmanager
    async def turn(self, peer: str) -> AsyncIterator[Turn]:
        """A turn while the block runs; its holder must leave when the turn is lost. Hosts take
        turns, and so do the connections of a host; a turn is revoked from one of the hosts that
        hold the most.

        peer: the caller as gRPC names it, such as `ipv4:10.1.2.3:50123`. Raises Overloaded if 1024
        calls wait and the host and connection of the caller have the most of them, DeadlineExceeded
        if there was no turn in `seconds`, and the refusal after `close`.
        """
        if self._refusal is not None:
            raise self._refusal()
        free = len(self.turns) < self._limit and not self._queue
        turn = self._begin(host_of(peer)) if free else await self._next(peer)
        try:
            yield turn
        finally:
            self.turns.pop(turn, None)
            self._give()

    def _begin(self, host: str) -> Turn:
        turn = Turn(host, asyncio.get_running_loop().time())
        self.turns[turn] = None
        return turn

    async def _next(self, peer: str) -> Turn:
        host = host_of(peer)
        given: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._queue.add(host, peer, given)
        if len(self._queue) > _MOST_WAITING:
            refused = self._queue.newest_of_the_most()
            if not refused.done():
                refused.set_exception(_full(f"{_MOST_WAITING} calls wait to be read"))
        self._give()
        try:
            async with asyncio.timeout(self.seconds):
                return await given
        except BaseException as error:
            if given.done() and not given.cancelled() and given.exception() is None:
                # The turn was granted at the moment at which its caller left.
                self.turns.pop(given.result(), None)
                self._give()
            else:
                self._queue.remove(host, peer, given)
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(
                    f"the first message was not read in {self.seconds:g} s: too many others are being sent"
                ) from error
            raise

    def _give(self) -> None:
        """Grant the turns that are free or overdue; run again when the next one is overdue."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._queue:
            if len(self.turns) >= self._limit:
                oldest = self._oldest_of_the_most()
                fair = _LINE_SECONDS * self._limit / len(self._queue)
                overdue = oldest.begun + min(self._undisturbed, max(_LEAST_UNDISTURBED_SECONDS, fair))
                if overdue > loop.time():
                    self._timer = loop.call_at(overdue, self._give)
                    return
                del self.turns[oldest]
                late = "the first message was not complete when other calls had to be read"
                oldest.take_back(_full(late))
            host, given = self._queue.next()
            if not given.done():
                given.set_result(self._begin(host))

    def _oldest_of_the_most(self) -> Turn:
        """The oldest turn of the hosts that hold the most."""
        held = Counter(turn.host for turn in self.turns)
        most = max(held.values())
        return next(turn for turn in self.turns if held[turn.host] == most)


def _full(message: str) -> Overloaded:
    return Overloaded(message, retry_after=_RETRY_SECONDS, limit="queue")
