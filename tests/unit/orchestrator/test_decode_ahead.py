"""Sentences that are begun before their turn: what a long request keeps of those that are over, and
what is ended with it.
"""

import asyncio
import contextlib
from unittest.mock import AsyncMock

from services.orchestrator.decode_ahead import Decode, SentencesAhead
from services.orchestrator.speech.silence import Play
from services.orchestrator.speech.token_stream import GenerationTiming, TokenStream
from services.orchestrator.speech.utterance import Sentence
from services.orchestrator.stages.token2wav import Decoded


def written(index: int) -> TokenStream:
    stream = TokenStream(Sentence(index, (1,)), seed=0)
    stream.extend([1] * 20)
    stream.finish(GenerationTiming(0.0, 0.0, 0.0))
    return stream


def queued(*streams: TokenStream | None) -> "asyncio.Queue[TokenStream | None]":
    queue: asyncio.Queue[TokenStream | None] = asyncio.Queue()
    for stream in streams:
        queue.put_nowait(stream)
    return queue


def decode(stream: TokenStream) -> Decode:
    async def decoded(play: Play) -> Decoded:
        await play(b"")
        return Decoded()

    return decoded


async def test_a_request_of_many_sentences_keeps_nothing_of_those_that_are_over() -> None:
    begun_early, most = 0, 0
    async with contextlib.aclosing(SentencesAhead(queued(*map(written, range(50)), None))) as sentences:
        upcoming = await sentences.first()
        while upcoming.stream is not None:
            over = asyncio.Event()
            following = sentences.behind(upcoming.stream, over, lambda: 0.5, decode)
            if upcoming.sound is not None:
                begun_early += 1
                await upcoming.sound.play(AsyncMock())
            upcoming = await following
            over.set()
            await asyncio.sleep(0)
            most = max(most, len(sentences._tasks))
    assert begun_early == 49
    assert most <= 2


async def test_what_was_begun_early_ends_with_the_request() -> None:
    async with contextlib.aclosing(SentencesAhead(queued(written(1)))) as sentences:
        upcoming = await sentences.behind(written(0), asyncio.Event(), lambda: 0.5, decode)
        await asyncio.sleep(0)
        assert not upcoming.sound.task.done()
    assert upcoming.sound.task.cancelled()
