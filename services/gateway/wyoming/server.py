"""Accepts connections of Wyoming, as many as are allowed, and ends them with the gateway."""

import asyncio
import contextlib
import socket

from services.gateway.speech.speaking import Speaker
from services.gateway.wyoming.connection import Connection, Patience
from services.gateway.wyoming.events import MOST_LINE_BYTES, Event


class WyomingServer:
    """most_connections: at once; a further one gets an `error` and is closed."""

    def __init__(self, speaker: Speaker, patience: Patience, most_connections: int) -> None:
        self._speaker, self._patience, self._most = speaker, patience, most_connections
        self._server: asyncio.Server | None = None
        self._running: dict[asyncio.Task[None], Connection] = {}
        self._draining_since: float | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accept on a bound socket from now on."""
        self._server = await asyncio.start_server(self._accept, sock=listening, limit=MOST_LINE_BYTES)

    def begin_drain(self) -> None:
        """Accept nothing more, and let each connection end with what it was asked for."""
        if self._draining_since is None:
            self._draining_since = asyncio.get_running_loop().time()
        if self._server is not None:
            self._server.close()
        for connection in self._running.values():
            connection.drain()

    async def close(self, seconds: float) -> None:
        """Drain for at most `seconds`, counted from its beginning, then cut what has not ended."""
        self.begin_drain()
        passed = asyncio.get_running_loop().time() - (self._draining_since or 0.0)
        if self._running:
            await asyncio.wait(self._running, timeout=max(seconds - passed, 0.0))
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._running) >= self._most:
            text = f"the gateway has the {self._most} connections of Wyoming that are allowed"
            writer.write(Event("error", {"text": text, "code": "unavailable"}).to_bytes())
            writer.close()
            return
        connection = Connection(reader, writer, self._speaker, self._patience)
        task = asyncio.create_task(connection.run())
        self._running[task] = connection
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        with contextlib.suppress(asyncio.CancelledError):
            task.result()
