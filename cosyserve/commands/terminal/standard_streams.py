"""Reads standard input and writes standard output on daemon threads, which do not delay the exit of
the process.
"""

import asyncio
import codecs
import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

T = TypeVar("T")
_MOST_BYTES = 4_096


async def _run_in_daemon_thread(work: Callable[[], T], name: str) -> T:
    """Run `work` on a daemon thread and return its result. Cancelling this abandons the thread, so
    `work` must hold no lock that the interpreter takes at exit.
    """
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()  # from here on only the thread ends it

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name=name).start()
    return await asyncio.wrap_future(done)


async def read_text(descriptor: int) -> AsyncIterator[str]:
    """Text from `descriptor` (UTF-8; invalid bytes become U+FFFD) as it arrives, until its end.
    Raises OSError if it cannot be read.

    The reading thread is a daemon: exiting does not wait for input that never comes.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while piece := await _run_in_daemon_thread(lambda: os.read(descriptor, _MOST_BYTES), "read_text"):
        if text := decode(piece):
            yield text
    if text := decode(b"", final=True):
        yield text


async def write_bytes(descriptor: int, content: bytes) -> None:
    """Write all of `content`. Bypasses the buffer of Python, because an abandoned thread would keep
    its lock from the interpreter.
    """

    def write() -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    await _run_in_daemon_thread(write, "write_bytes")
