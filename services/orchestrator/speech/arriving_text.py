"""The text of a request while it arrives: reads the messages of a StreamingSynthesize after its
setup, with a time limit for each, and keeps their text, which the frontend stage reads, and reads
again after a failure.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cosyserve.errors import DeadlineExceeded, InvalidRequest
from cosyserve.tasks import Changes, retrieve_error

_LONGEST_PIECE = 4_000
FEWEST_DELAYED_WORDS = 4
"""Fewest words in a part of a sentence that is spoken because of a pause in the text."""


@dataclass(frozen=True)
class Flush:
    """The text up to here is to be spoken now. least_words: as AnalyzeFlush of frontend.proto."""

    least_words: int = 0


class TextReplayBuffer:
    """An append-only text that drops its beginning when the frontend no longer needs it. It holds
    at most `most_waiting` characters and one fragment, because the writer waits for `room`.
    """

    def __init__(self, most_waiting: int) -> None:
        self.received = 0
        """Characters received so far."""
        self.ended = False
        self.begin = 0
        """Position of the first character that is still held."""
        self._most_waiting = most_waiting
        self._is_document = False
        self._text = ""
        self._flushes: deque[tuple[int, Flush]] = deque()
        self._flushes_forgotten = 0
        self._changes = Changes()

    def feed(self, fragment: str) -> None:
        self._text += fragment
        self.received += len(fragment)
        self._changes.notify()

    def flush(self, flush: Flush) -> None:
        """Add a flush. One at which no text waits, or a repeated one, is ignored: so there are no
        more flushes than characters.
        """
        if self.received == self.begin or (
            self._flushes and self._flushes[-1] in ((self.received, flush), (self.received, Flush()))
        ):
            return
        self._flushes.append((self.received, flush))
        self._changes.notify()

    def end(self) -> None:
        self.ended = True
        self._changes.notify()

    async def room(self) -> None:
        """Wait until fewer than `most_waiting` characters are held. A document is held whole: the
        frontend limits its size.
        """
        await self._changes.wait_for(lambda: len(self._text) < self._most_waiting or self._is_document)

    async def read(self) -> AsyncIterator[str | Flush]:
        """What is held and what follows, to the end: text, in pieces of at most 4000 characters,
        and flushes.
        """
        place, flushes = self.begin, self._flushes_forgotten
        while True:
            flushes = max(flushes, self._flushes_forgotten)
            ahead = flushes - self._flushes_forgotten
            border, flush = self._flushes[ahead] if ahead < len(self._flushes) else (self.received, None)
            if border > place:
                offset = place - self.begin
                piece = self._text[offset : offset + min(border - place, _LONGEST_PIECE)]
                place += len(piece)
                yield piece
            elif flush is not None:
                flushes += 1
                yield flush
            elif self.ended:
                return
            else:
                await self._changes.wait()

    def forget(self, until: int) -> None:
        """Drop the text up to this position, and its flushes."""
        self._text = self._text[until - self.begin :]
        self.begin = until
        while self._flushes and self._flushes[0][0] <= until:
            self._flushes.popleft()
            self._flushes_forgotten += 1
        self._changes.notify()

    def keep_whole(self) -> None:
        """The text is a document, all of which the frontend needs until its end."""
        if not self._is_document:
            self._is_document = True
            self._changes.notify()


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
