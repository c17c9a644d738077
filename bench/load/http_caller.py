"""A caller of the gateway over one kept connection, which costs the measuring process as little as
a gRPC client does: a full HTTP client would be measured in place of the gateway.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Answer:
    """first: seconds from the request to the first byte of the body. size: bytes of the body."""

    first: float
    size: int


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
        if self._reader is not None:
            self._writer.close()

    async def speak(self, text: str, response_format: str, seed: int, voice: str = "") -> Answer:
        """POST /v1/audio/speech. Raises ValueError for any other status than 200, and
        IncompleteReadError for a body that is cut.
        """
        content = json.dumps({"input": text, "response_format": response_format, "seed": seed, "voice": voice}).encode()
        head = (
            "POST /v1/audio/speech HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\n\r\n"
        )
        await self.connect()
        assert self._reader is not None
        begin = time.perf_counter()
        self._writer.write(head.encode() + content)
        answered = await self._reader.readuntil(b"\r\n\r\n")
        if not answered.startswith(b"HTTP/1.1 200"):
            raise ValueError(f"the gateway answered {answered.splitlines()[0].decode()}")
        size = await _chunk(self._reader)
        first, total = time.perf_counter() - begin, size
        while size:
            size = await _chunk(self._reader)
            total += size
        return Answer(first, total)


async def _chunk(reader: asyncio.StreamReader) -> int:
    """Bytes of the next chunk of a body; 0 for the last one (RFC 9112, section 7.1)."""
    size = int(await reader.readline(), 16)
    await reader.readexactly(size + 2)
    return size
