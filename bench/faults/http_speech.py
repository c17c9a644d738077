"""Speech from the gateway over a connection of its own, as bytes that arrive, with an HTTP client
that costs the measuring process little.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator

_HEAD = "HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n"


class NotTaken(Exception):
    """No connection was made: nothing has been sent."""


class Refused(Exception):
    """The gateway answered with another status than 200; the text is its first line."""


class Cut(Exception):
    """The connection was lost before the answer was complete."""


async def spoken(address: str, text: str, seed: int) -> AsyncGenerator[bytes]:
    """POST /v1/audio/speech for raw samples; yields them as they arrive. Raises NotTaken, Refused
    and Cut."""
    host, _, port = address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
    except OSError as error:
        raise NotTaken(str(error)) from error
    try:
        content = json.dumps({"input": text, "response_format": "pcm", "seed": seed}).encode()
        length = f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        writer.write(f"POST /v1/audio/speech {_HEAD}{length}".encode() + content)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise Refused(head.splitlines()[0].decode())
        while size := int(await reader.readline(), 16):
            yield (await reader.readexactly(size + 2))[:-2]
    except (OSError, EOFError, ValueError) as error:
        raise Cut(f"{type(error).__name__}: {error}") from error
    finally:
        writer.close()


async def is_ready(address: str) -> bool:
    """Whether the gateway at `address` answers its readiness probe with 200."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(f"GET /readyz {_HEAD}\r\n".encode())
            return (await reader.readline()).startswith(b"HTTP/1.1 200")
        finally:
            writer.close()
    return False
