"""Reads standard input as it arrives, from a terminal, a pipe or a file."""

import codecs
import os
from collections.abc import AsyncIterator

from cosyserve.commands.terminal.standard_streams import run_in_daemon_thread

_MOST_BYTES = 4_096


async def read_text(descriptor: int) -> AsyncIterator[str]:
    """Text from `descriptor` (UTF-8; invalid bytes become U+FFFD) as it arrives, until its end.
    Raises OSError if it cannot be read.

    The reading thread is a daemon: exiting does not wait for input that never comes.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while piece := await run_in_daemon_thread(lambda: os.read(descriptor, _MOST_BYTES), "read_text"):
        if text := decode(piece):
            yield text
    if text := decode(b"", final=True):
        yield text
