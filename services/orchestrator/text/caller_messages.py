"""Reads the messages of a StreamingSynthesize after its setup: text, flush, cancel or the end, with
a time limit for each.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cosyserve.errors import DeadlineExceeded, InvalidRequest
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


@dataclass(frozen=True)
class Fragment:
    """One message after the setup: text, a flush or a cancel."""

    text: str = ""
    flush: bool = False
    cancel: bool = False


async def listen(
    fragments: AsyncIterator[Fragment], text: TextReplayBuffer, waiting: Waiting, most_characters: int
) -> None:
    """Write the text of `fragments` into `text` until they end. While too much text waits to be
    spoken, no message is read.

    Raises CancelledByCaller; InvalidRequest if there are more than `most_characters`;
    DeadlineExceeded if no message comes in time.
    """
    while True:
        await text.room()
        fragment = await _next(fragments, text, waiting)
        if fragment is None:
            text.end()
            return
        if fragment.cancel:
            raise CancelledByCaller
        if text.received + len(fragment.text) > most_characters:
            raise InvalidRequest(
                f"text has {text.received + len(fragment.text)} characters in all, allowed are 1 to {most_characters}"
            )
        if fragment.text:
            text.feed(fragment.text)
        if fragment.flush:
            text.flush(Flush())


async def _next(fragments: AsyncIterator[Fragment], text: TextReplayBuffer, waiting: Waiting) -> Fragment | None:
    """The next message, None at the end. One read waits for it and is never cancelled: a cancelled
    read may lose a message and leaks native memory (cosyserve.rpc.calls). It ends with the call.
    """
    reading = asyncio.ensure_future(anext(fragments, None))
    reading.add_done_callback(_seen)
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


async def _done(reading: "asyncio.Future[Fragment | None]", seconds: float) -> bool:
    done, _ = await asyncio.wait((reading,), timeout=seconds)
    return bool(done)


def _seen(reading: "asyncio.Future[Fragment | None]") -> None:
    """Retrieve the error of a read that no task waits for any more, so that asyncio does not log
    it: the call is over.
    """
    if not reading.cancelled():
        reading.exception()
