"""A caller of the gateway over one kept connection, which costs the measuring process as little as
a gRPC client does: a full HTTP client would be measured in place of the gateway.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_REFUSALS = (b"429", b"503")


@dataclass(frozen=True)
class Answer:
    """first: seconds from the request to the first byte of the body. size: bytes of the body."""

    first: float
    size: int


class Refused(ValueError):
    """The server does not admit the request. retry_after: seconds after which it may be asked
    again, as it says; None: it says nothing.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class HttpCaller:
    """address: host:port of the gateway."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._reader: asyncio.StreamReader | None = None

    async def __aenter__(self) -> Self:
        return self

    async def connect(self) -> None:
        """Open the connection, unless there is one; a gateway closes those without a request."""
        if self._reader is None or self._reader.at_eof():
            self._reader, self._writer = await asyncio.open_connection(self._host, int(self._port))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def speak(self, text: str, response_format: str, seed: int, voice: str = "") -> Answer:
        """POST /v1/audio/speech. Raises what `pieces` raises."""
        await self.connect()
        begin, first, total = time.perf_counter(), 0.0, 0
        async with aclosing(self.pieces(text, response_format, seed, voice)) as pieces:
            async for piece in pieces:
                first = first or time.perf_counter() - begin
                total += len(piece)
        return Answer(first, total)

    async def pieces(self, text: str, response_format: str, seed: int, voice: str = "") -> AsyncGenerator[bytes]:
        """The body as it arrives. Raises Refused for status 429 or 503, ValueError for any other
        than 200, and IncompleteReadError for a body that is cut; the connection is closed then, and
        when the caller stops reading.
        """
        content = json.dumps({"input": text, "response_format": response_format, "seed": seed, "voice": voice}).encode()
        head = (
            "POST /v1/audio/speech HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\n\r\n"
        )
        await self.connect()
        assert self._reader is not None
        whole = False
        try:
            self._writer.write(head.encode() + content)
            answered = await self._reader.readuntil(b"\r\n\r\n")
            status = answered.split(maxsplit=2)[1]
            if status != b"200":
                message = f"the gateway answered {answered.splitlines()[0].decode()}"
                raise Refused(message, _retry_after(answered)) if status in _REFUSALS else ValueError(message)
            while piece := await _chunk(self._reader):
                yield piece
            whole = True
        finally:
            if not whole:
                self.close()

    def close(self) -> None:
        """The next request opens another connection."""
        if self._reader is not None:
            self._writer.close()
            self._reader = None


def _retry_after(head: bytes) -> float | None:
    """Seconds, of the head of an answer."""
    found = re.search(rb"(?im)^retry-after-ms: *([0-9.]+) *\r$", head)
    return float(found[1]) / 1000 if found else None


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """The next chunk of a body; empty for the last one (RFC 9112, section 7.1)."""
    size = int(await reader.readuntil(b"\r\n"), 16)
    return (await reader.readexactly(size + 2))[:size]
