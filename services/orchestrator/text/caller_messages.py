"""What the caller of a StreamingSynthesize says after its setup: text, flush, cancel, the end; or
nothing for too long.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cosyserve.errors import DeadlineExceeded, InvalidRequest
from services.orchestrator.text.replay_buffer import Flush, TextReplayBuffer

FEWEST_DELAYED_WORDS = 4
"""What a pause in the text cuts off is not shorter."""


@dataclass(frozen=True)
class Waiting:
    """How long the next message of a caller is waited for."""

    delay_seconds: float | None
    """Then the words that are complete are spoken; None: never."""
    idle_seconds: float
    """Then the stream ends."""


class CancelledByCaller(Exception):
    """The caller wants no more of it."""


@dataclass(frozen=True)
class Fragment:
    """One message after the setup: text, a flush or a cancel."""

    text: str = ""
    flush: bool = False
    cancel: bool = False


async def listen(
    fragments: AsyncIterator[Fragment], text: TextReplayBuffer, waiting: Waiting, most_characters: int
) -> None:
    """Write what `fragments` brings into `text` until their end. While too much of it waits to be
    spoken nothing is read.

    Raises CancelledByCaller; InvalidRequest when there are more than `most_characters`;
    DeadlineExceeded when nothing comes in time.
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
    """The next message, None at the end. Waits for it with one read, which is never cancelled: that
    may swallow a message, and keeps native memory (cosyserve.rpc.reads). A read that is not waited
    for any longer ends with the call."""
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
        f"no message came for {waiting.idle_seconds:g} s behind {text.received} characters of text; "
        "expected text, a flush, a cancel or the end of the stream"
    )


async def _done(reading: "asyncio.Future[Fragment | None]", seconds: float) -> bool:
    done, _ = await asyncio.wait((reading,), timeout=seconds)
    return bool(done)


def _seen(reading: "asyncio.Future[Fragment | None]") -> None:
    """Has the error of a read that is not waited for any longer not logged as one that was
    forgotten: the call is over.
    """
    if not reading.cancelled():
        reading.exception()
