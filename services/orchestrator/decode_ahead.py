"""The next sentence is decoded while the one before it is still being played, so that token2wav
knows of it before its sound is due.

What is made waits for its turn: at most what gRPC's flow control and two hops of token2wav hold. No
sample depends on when it is made.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from cosyserve import spec
from services.orchestrator.sound.silence import Play
from services.orchestrator.speech.token_stream import TokenStream
from services.orchestrator.stages.token2wav import Decoded

LISTENER_SECONDS = 2.0
"""A sentence is begun early when its listener will have played everything in front of it in less
than that: with more there is time.
"""
Decode = Callable[[Play], Awaitable[Decoded]]


class SoundAhead:
    """One sentence whose decoding has begun before its turn."""

    def __init__(self, decode: Decode) -> None:
        self._turn: asyncio.Future[Play] = asyncio.get_running_loop().create_future()
        self.task = asyncio.ensure_future(decode(self._wait_and_play))
        self.task.add_done_callback(_retrieved)

    async def play(self, play: Play) -> Decoded:
        """It is its turn: hand its sound to `play`. Raises what the decoding raises, or has
        raised.
        """
        if not self._turn.done():
            self._turn.set_result(play)
        return await self.task

    async def _wait_and_play(self, audio: bytes) -> None:
        play = await asyncio.shield(self._turn)
        await play(audio)


class NextSentence:
    """The sentence behind the one that is being played. stream: None behind the last one."""

    def __init__(self, stream: TokenStream | None, sound: SoundAhead | None = None) -> None:
        self.stream = stream
        self.sound = sound


class SentencesAhead:
    """Takes sentences from `written` one after the other, and begins to decode one early where that
    is of use.

    Made by `sentences_ahead`, which ends what was begun and is not needed.
    """

    def __init__(self, written: "asyncio.Queue[TokenStream | None]") -> None:
        self._written = written
        self._tasks: set[asyncio.Future[Any]] = set()
        """Those under way: a request may have any number of sentences."""

    async def first(self) -> NextSentence:
        """The first sentence, or one behind a sentence without sound."""
        return NextSentence(await self._written.get())

    def behind(
        self,
        current: TokenStream,
        over: asyncio.Event,
        until_played: Callable[[], float],
        decode: Callable[[TokenStream], Decode] | None,
    ) -> "asyncio.Task[NextSentence]":
        """The sentence behind `current`.

        over: set when all its sound was sent. until_played: seconds until the listener has played
        `current`, asked when all its tokens are known. decode: decodes a sentence; None: none is
        begun early.
        """
        task = asyncio.create_task(self._behind(current, over, until_played, decode))
        self._keep(task)
        return task

    async def _behind(
        self,
        current: TokenStream,
        over: asyncio.Event,
        until_played: Callable[[], float],
        decode: Callable[[TokenStream], Decode] | None,
    ) -> NextSentence:
        if decode is not None:
            await current.settled()
            await _wait(over, until_played() - LISTENER_SECONDS)
        else:
            await over.wait()
        stream = await self._written.get()
        if stream is None or stream.sentence.silent or over.is_set() or decode is None or current.fault is not None:
            return NextSentence(stream)
        sound = SoundAhead(decode(stream))
        self._keep(sound.task)
        return NextSentence(stream, sound)

    def _keep(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End everything that is still under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def sentences_ahead(written: "asyncio.Queue[TokenStream | None]") -> AsyncIterator[SentencesAhead]:
    """The sentences of one request while the block runs; what was begun and not played is ended
    with it.
    """
    ahead = SentencesAhead(written)
    try:
        yield ahead
    finally:
        await ahead.close()


def seconds_of(stream: TokenStream, speed: float) -> float:
    """How long the sound of its tokens lasts, as far as they are known."""
    return len(stream.tokens) / spec.TOKENS_PER_SECOND / speed


async def _wait(over: asyncio.Event, seconds: float) -> None:
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await over.wait()


def _retrieved(task: "asyncio.Future[Decoded]") -> None:
    """A sentence that fails before its turn may never get it; its failure is raised by `play`."""
    if not task.cancelled():
        task.exception()
