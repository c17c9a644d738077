"""Decodes the next sentence while the one before it is still being played, so that token2wav knows
of it before its sound is due.

The decoded sound waits for its turn: at most what the flow control of gRPC and two hops of
token2wav hold. No sample depends on when it is decoded.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from cosyserve import spec
from cosyserve.tasks import cancel_all, retrieve_error
from services.orchestrator.speech.silence import Play
from services.orchestrator.speech.token_stream import TokenStream
from services.orchestrator.stages.token2wav import Decoded

LISTENER_SECONDS = 2.0
"""A sentence is decoded early if the listener will have played everything before it in less than
this time; with more there is no hurry.
"""
_UTTERANCE_BITS = 63
Decode = Callable[[Play], Awaitable[Decoded]]


class PlaybackClock:
    """A simulated player, which estimates how much sound the listener of a request still has to
    play: it starts with the first sound and waits when it has run dry. now: a monotonic clock, in
    seconds.

    utterance: a random number that lets token2wav recognise sentences played one after another.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.utterance = secrets.randbits(_UTTERANCE_BITS) or 1
        self._now = now
        self._until = 0.0

    def sent(self, seconds: float) -> None:
        """So many seconds of sound were sent."""
        self._until = max(self._until, self._now()) + seconds

    @property
    def left(self) -> float:
        """Seconds left to play; 0 before the first sound and when the player has run dry."""
        return max(self._until - self._now(), 0.0)


class SoundAhead:
    """One sentence whose decoding has begun before its turn."""

    def __init__(self, decode: Decode) -> None:
        self._turn: asyncio.Future[Play] = asyncio.get_running_loop().create_future()
        self.task = asyncio.ensure_future(decode(self._wait_and_play))
        # The sentence may never get its turn.
        self.task.add_done_callback(retrieve_error)

    async def play(self, play: Play) -> Decoded:
        """Hand the sound of the sentence to `play`, now that it is its turn. Raises what the
        decoding raises or has raised.
        """
        if not self._turn.done():
            self._turn.set_result(play)
        return await self.task

    async def _wait_and_play(self, audio: bytes) -> None:
        play = await asyncio.shield(self._turn)
        await play(audio)


class NextSentence(NamedTuple):
    """The sentence that follows the one being played. stream: None after the last one."""

    stream: TokenStream | None
    sound: SoundAhead | None = None


class SentencesAhead:
    """Takes sentences from `written` one after the other and starts to decode one early where that
    helps. `aclose` cancels decoding that was started and not played.
    """

    def __init__(self, written: "asyncio.Queue[TokenStream | None]") -> None:
        self._written = written
        self._tasks: set[asyncio.Future[Any]] = set()
        """Running tasks only: a request may have any number of sentences."""

    async def first(self) -> NextSentence:
        """The first sentence, or the one after a sentence without sound."""
        return NextSentence(await self._written.get())

    def behind(
        self,
        current: TokenStream,
        over: asyncio.Event,
        until_played: Callable[[], float],
        decode: Callable[[TokenStream], Decode] | None,
    ) -> "asyncio.Task[NextSentence]":
        """The sentence after `current`.

        over: set when all its sound was sent. until_played: seconds until the listener has played
        `current`, asked when all its tokens are known. decode: decodes a sentence; None: no
        sentence is decoded early.
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
        if decode is None:
            await over.wait()
            return await self.first()
        await current.settled()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until_played() - LISTENER_SECONDS):
                await over.wait()
        stream = await self._written.get()
        if stream is None or stream.sentence.silent or over.is_set() or current.fault is not None:
            return NextSentence(stream)
        sound = SoundAhead(decode(stream))
        self._keep(sound.task)
        return NextSentence(stream, sound)

    def _keep(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Cancel everything that is still running."""
        await cancel_all(self._tasks)


def seconds_of(stream: TokenStream, speed: float) -> float:
    """How long the sound of its tokens lasts, as far as they are known."""
    return len(stream.spoken) / spec.TOKENS_PER_SECOND / speed
