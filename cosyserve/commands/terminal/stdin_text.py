"""Standard input as it arrives, be it a terminal, a pipe or a file."""

import codecs
import os
from collections.abc import AsyncIterator

from cosyserve.commands.terminal.daemon_thread import run_in_daemon_thread

_MOST_BYTES = 4_096


async def read_text(descriptor: int) -> AsyncIterator[str]:
    """What can be read from `descriptor` (UTF-8; bytes that are none become U+FFFD), each time
    something is there, until its end. Raises OSError when it cannot be read.

    The reading thread is a daemon: leaving does not wait for input that never comes.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while piece := await run_in_daemon_thread(lambda: os.read(descriptor, _MOST_BYTES), "read_text"):
        if text := decode(piece):
            yield text
    if text := decode(b"", final=True):
        yield text
