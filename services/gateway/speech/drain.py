"""The end of the gateway: whether it has begun, and whether work is left."""

import asyncio
import contextlib
from collections.abc import Iterator

from starlette.requests import HTTPConnection


class Drain:
    """Once it has begun, no new work is taken and the work under way ends in its own time."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._working = 0

    @property
    def begun(self) -> bool:
        return self._begun.is_set()

    @property
    def working(self) -> int:
        """Requests and WebSockets under way."""
        return self._working

    def begin(self) -> None:
        """Take no new work from now on."""
        self._begun.set()

    async def until_begun(self) -> None:
        await self._begun.wait()

    async def until_idle(self) -> None:
        """Return when no work is under way."""
        await self._idle.wait()

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """A request or a WebSocket while the block runs."""
        self._working += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._working -= 1
            if not self._working:
                self._idle.set()


def drain_of(connection: HTTPConnection) -> Drain:
    """The drain of the application that serves this connection."""
    drain: Drain = connection.app.state.drain
    return drain
