"""A TCP proxy that delivers every byte later, in both directions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

_MOST_PIECES = 256
"""Read and not delivered yet, in each direction of a connection."""
_PIECE_BYTES = 64 * 1024


class SlowLink:
    """delay: seconds for each direction; may be changed while connections are open."""

    def __init__(self, listen: str, host: str, port: int) -> None:
        """listen: its own host. host, port: where connections are passed on to."""
        self.listen, self.delay = listen, 0.0
        self._host, self._port = host, port
        self._open: set[asyncio.StreamWriter] = set()
        self._unused = asyncio.Event()
        self._unused.set()

    async def until_unused(self) -> None:
        """Return when no connection is open."""
        await self._unused.wait()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until both sides have closed it or one is lost."""
        try:
            there = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, there[1]}
        self._open |= both
        self._unused.clear()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, there[1]))
                group.create_task(self._pass_on(there[0], writer))
        except* OSError:
            pass
        finally:
            self._open -= both
            for each in both:
                each.transport.abort()
            if not self._open:
                self._unused.set()

    def cut(self) -> None:
        """Lose every connection."""
        for writer in self._open:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_PIECES)

        async def deliver() -> None:
            while True:
                due, data = await pieces.get()
                await asyncio.sleep(max(0.0, due - clock.time()))
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(deliver())
            data = b"-"
            while data:
                data = await reader.read(_PIECE_BYTES)
                await pieces.put((clock.time() + self.delay, data))


@contextlib.asynccontextmanager
async def slow_link(listen: str, host: str, port: int) -> AsyncIterator[SlowLink]:
    """A proxy at `listen`, with the same port, while the block runs; without a delay at first."""
    link = SlowLink(listen, host, port)
    server = await asyncio.start_server(link.connected, listen, port)
    try:
        yield link
    finally:
        server.close()
        link.cut()
