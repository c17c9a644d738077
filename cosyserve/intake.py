"""How many first messages a server receives at once, before anything of them is known.

A read that has begun lets its caller send a whole message, and holds what came of it. So calls take turns at reading: a message that has
arrived is read in a millisecond, and a call that keeps others waiting without completing its message loses the turn.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from cosyserve.errors import DeadlineExceeded, Overloaded

UNDISTURBED_SECONDS: Final = 1.0
"""A call whose message is not complete after this long loses its turn as soon as another call waits for one."""
_MOST_WAITING: Final = 1024
_RETRY_SECONDS: Final = 1.0


class Turn:
    """The right to receive one message. lost: set when it is taken back."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.lost = asyncio.Event()


class Intake:
    """Made and used inside one event loop. limit: messages received at once. seconds: for one message, the wait for its turn included."""

    def __init__(self, limit: int, seconds: float) -> None:
        self.seconds = seconds
        self._limit = limit
        self._turns: dict[Turn, None] = {}
        self._waiting: list[asyncio.Future[Turn]] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def receiving(self) -> int:
        """Messages that are being received."""
        return len(self._turns)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """A turn while the block runs; its holder has to leave when it is lost. Calls that came last go first: many calls that never
        complete a message would otherwise stand in front of every other one.

        Raises Overloaded when 1024 calls wait, DeadlineExceeded when no turn came in `seconds`.
        """
        turn = self._begin() if len(self._turns) < self._limit and not self._waiting else await self._next()
        try:
            yield turn
        finally:
            self._end(turn)

    def _begin(self) -> Turn:
        turn = Turn(asyncio.get_running_loop().time() + UNDISTURBED_SECONDS)
        self._turns[turn] = None
        return turn

    async def _next(self) -> Turn:
        if len(self._waiting) >= _MOST_WAITING:
            raise Overloaded(f"{_MOST_WAITING} calls wait to be read", retry_after=_RETRY_SECONDS)
        given: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._waiting.append(given)
        self._give()
        try:
            async with asyncio.timeout(self.seconds):
                return await given
        except BaseException as error:
            if given.done() and not given.cancelled():
                self._end(given.result())
            elif given in self._waiting:
                self._waiting.remove(given)
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(f"the first message was not read in {self.seconds:g} s: too many others are being sent") from error
            raise

    def _end(self, turn: Turn) -> None:
        self._turns.pop(turn, None)
        self._give()

    def _give(self) -> None:
        """Hand out the turns that are free or overdue; come back when the next one is overdue."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._waiting:
            if len(self._turns) >= self._limit:
                oldest = next(iter(self._turns))
                if oldest.until > loop.time():
                    self._timer = loop.call_at(oldest.until, self._give)
                    return
                del self._turns[oldest]
                oldest.lost.set()
            given = self._waiting.pop()
            if not given.done():
                given.set_result(self._begin())
