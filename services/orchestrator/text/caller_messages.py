"""Reads the messages of a StreamingSynthesize after its setup: text, flushes and the end, with a
time limit for each.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cosyserve.errors import DeadlineExceeded, InvalidRequest
from cosyserve.tasks import retrieve_error
from services.orchestrator.text.replay_buffer import Flush, TextReplayBuffer

FEWEST_DELAYED_WORDS = 4
"""Fewest words in a part of a sentence that is spoken because of a pause in the text."""


@dataclass(frozen=True)
class Waiting:
    """How long to wait for the next message of a caller."""

    delay_seconds: float | None
    """After this time the complete words are spoken; None: never."""
    idle_seconds: float
    """After this time the stream ends with an error."""


class CancelledByCaller(Exception):
    """The caller cancelled the synthesis."""


async def listen(
    parts: AsyncIterator[str | Flush], text: TextReplayBuffer, waiting: Waiting, most_characters: int
) -> None:
    """Write the text and the flushes of `parts` into `text` until they end. While too much text
    waits to be spoken, no message is read.

    Raises what `parts` raises; InvalidRequest if there are more than `most_characters`;
    DeadlineExceeded if no message comes in time.
    """
    while True:
        await text.room()
        part = await _next(parts, text, waiting)
        if part is None:
            text.end()
            return
        if isinstance(part, Flush):
            text.flush(part)
            continue
        if text.received + len(part) > most_characters:
            raise InvalidRequest(
                f"text has {text.received + len(part)} characters in all, allowed are 1 to {most_characters}"
            )
        text.feed(part)


async def _next(parts: AsyncIterator[str | Flush], text: TextReplayBuffer, waiting: Waiting) -> str | Flush | None:
    """The next message, None at the end. One read waits for it and is never cancelled: a cancelled
    read may lose a message and leaks native memory (cosyserve.rpc.calls). It ends with the call.
    """
    reading = asyncio.ensure_future(anext(parts, None))
    reading.add_done_callback(retrieve_error)
    if waiting.delay_seconds is not None and waiting.delay_seconds < waiting.idle_seconds:
        if await _done(reading, waiting.delay_seconds):
            return reading.result()
        text.flush(Flush(FEWEST_DELAYED_WORDS))
        left = waiting.idle_seconds - waiting.delay_seconds
    else:
        left = waiting.idle_seconds
    if await _done(reading, left):
        return reading.result()
    raise DeadlineExceeded(
        f"no message came for {waiting.idle_seconds:g} s after {text.received} characters of text; "
        "expected text, a flush, a cancel or the end of the stream"
    )


async def _done(reading: "asyncio.Future[str | Flush | None]", seconds: float) -> bool:
    done, _ = await asyncio.wait((reading,), timeout=seconds)
    return bool(done)
