"""An HTTP/1.1 and WebSocket caller made of bare bytes, which stops where a client library would go
on.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

SPEECH = "/v1/audio/speech"
UPGRADE = (
    b"GET /v1/audio/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_SECONDS = 60.0
T = TypeVar("T")


@dataclass(frozen=True)
class Caller:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *pieces: bytes) -> None:
        """Return when the system has taken them; a connection that the peer has closed takes
        everything.
        """
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                self.writer.write(piece)
                await self.writer.drain()

    async def status(self) -> int:
        """Of the next answer; 0 if the connection ends without one. Raises TimeoutError after a
        minute.
        """
        async with asyncio.timeout(_SECONDS):
            try:
                line = await self.reader.readline()
            except ConnectionError:
                return 0
        return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0

    async def until_closed(self) -> bytes:
        """All that comes. Raises TimeoutError after a minute."""
        received = b""
        async with asyncio.timeout(_SECONDS):
            with contextlib.suppress(ConnectionError):
                while piece := await self.reader.read(1 << 16):
                    received += piece
        return received


@contextlib.asynccontextmanager
async def calling(address: str, count: int, small_window: bool = False) -> AsyncIterator[Sequence[Caller]]:
    """`count` connections to host:port, which end with a reset. small_window: what is not read
    stays with the server.
    """
    host, _, port = address.rpartition(":")
    limit = 1 << 12 if small_window else 1 << 16
    callers: list[Caller] = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(host, int(port), limit=limit)
            callers.append(Caller(reader, writer))
        yield callers
    finally:
        for caller in callers:
            caller.writer.transport.abort()


async def all_of(callers: Sequence[Caller], act: Callable[[Caller], Awaitable[T]]) -> list[T]:
    """What `act` returns of each, all at once."""
    return list(await asyncio.gather(*map(act, callers)))


def post(content: bytes, path: str = SPEECH, kind: str = "application/json", announced: int | None = None) -> bytes:
    """A request; `announced`: its content-length if not the true one."""
    length = len(content) if announced is None else announced
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
    return head.encode() + content


def speech(text: str) -> bytes:
    """A request for a text as pcm."""
    return post(json.dumps({"input": text, "response_format": "pcm", "seed": 1}).encode())


async def tiny(address: str) -> float:
    """Seconds until the first audio of a tiny request over a connection of its own. Raises OSError
    or ValueError if it is refused, TimeoutError after a minute.
    """
    begin = asyncio.get_running_loop().time()
    async with calling(address, 1) as (caller,), asyncio.timeout(_SECONDS):
        await caller.send(speech("Yes."))
        if (status := await caller.status()) != 200:
            raise ValueError(f"a tiny request was answered with {status}")
        await caller.reader.readuntil(b"\r\n\r\n")
        await caller.reader.readexactly(8)
        return asyncio.get_running_loop().time() - begin
