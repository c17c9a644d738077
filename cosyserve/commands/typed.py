"""Standard input as it arrives, be it a terminal, a pipe or a file."""

import asyncio
import codecs
import os
import threading
from collections.abc import AsyncIterator

_MOST_BYTES = 4_096


async def typed(descriptor: int) -> AsyncIterator[str]:
    """What can be read from `descriptor` (UTF-8; bytes that are none become U+FFFD), each time something is there, until its end.
    Raises OSError when it cannot be read.

    The reading thread is a daemon: leaving does not wait for input that never comes.
    """
    loop = asyncio.get_running_loop()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while piece := await _daemon(loop, descriptor):
        if text := decode(piece):
            yield text
    if text := decode(b"", final=True):
        yield text


async def _daemon(loop: asyncio.AbstractEventLoop, descriptor: int) -> bytes:
    arrived: asyncio.Future[bytes] = loop.create_future()

    def give(piece: bytes | OSError) -> None:
        if arrived.done():
            return
        if isinstance(piece, OSError):
            arrived.set_exception(piece)
        else:
            arrived.set_result(piece)

    def read() -> None:
        piece: bytes | OSError
        try:
            piece = os.read(descriptor, _MOST_BYTES)
        except OSError as error:
            piece = error
        # The loop may be gone: then nobody listens.
        if not loop.is_closed():
            loop.call_soon_threadsafe(give, piece)

    threading.Thread(target=read, daemon=True, name="typed").start()
    return await arrived
