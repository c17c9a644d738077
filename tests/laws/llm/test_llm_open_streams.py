"""Text streams without text delay no sentence: they have no place in the batch, and their number is
limited.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cosyserve.errors import Overloaded
from services.llm.backends.backend import Backend
from services.llm.backends.fake_backend import FakeBackend
from services.llm.backends.torch_backend import TorchBackend
from services.llm.engine.kv_cache import cache_bytes
from services.llm.generation.request import Grouping
from tests.stacks.calls import until
from tests.unit.llm.tiny_llm import backend, sentence, settings, tokens

BLOCK = [1, 2, 3, 4, 5]


class Talk:
    """A text stream that the test feeds, and who reads its tokens."""

    def __init__(self, to: Backend, seed: int = 0) -> None:
        self._pieces: asyncio.Queue[list[int] | None] = asyncio.Queue()
        self.reader = asyncio.create_task(
            tokens(to, sentence(seed, text=self._text(), grouping=Grouping(first=1, rest=1)))
        )

    def say(self, ids: list[int] | None) -> None:
        self._pieces.put_nowait(ids)

    async def _text(self) -> AsyncIterator[list[int]]:
        while (ids := await self._pieces.get()) is not None:
            yield ids


@contextlib.asynccontextmanager
async def talks(to: Backend, count: int) -> AsyncIterator[list[Talk]]:
    opened = [Talk(to, seed) for seed in range(count)]
    await asyncio.sleep(0)
    try:
        yield opened
    finally:
        for talk in opened:
            talk.reader.cancel()
        await asyncio.wait([talk.reader for talk in opened])


async def parked(engine: TorchBackend, count: int, begun: int) -> None:
    """Until so many wait for text."""
    await until(lambda: (engine.engine.stats.parked, engine.engine.stats.prefills) == (count, begun), 120)


async def test_a_stream_without_text_takes_no_place_and_no_memory() -> None:
    async with backend(max_sequences=1, max_waiting=1) as engine, talks(engine, 2):
        await parked(engine, 2, 0)
        assert engine.engine.stats.reserved_kv_bytes == 0
        assert await asyncio.wait_for(tokens(engine, sentence(2)), 30)


async def test_a_stream_between_two_texts_keeps_its_memory_but_no_place() -> None:
    async with backend(max_sequences=1, max_waiting=1) as engine, talks(engine, 2) as opened:
        for talk in opened:
            talk.say(BLOCK)
        await parked(engine, 2, 2)
        assert engine.engine.stats.reserved_kv_bytes == 2 * cache_bytes(engine.engine.config, 2048)
        assert await asyncio.wait_for(tokens(engine, sentence(2)), 30)
        for talk in opened:
            talk.say(BLOCK)
            talk.say(None)
        assert all(await asyncio.wait_for(asyncio.gather(*(talk.reader for talk in opened)), 30))


async def test_a_stream_that_waits_for_a_place_has_the_tokens_of_one_alone() -> None:
    async def said(engine: TorchBackend, count: int) -> list[list[int]]:
        async with talks(engine, count) as opened:
            for ids in (BLOCK, BLOCK, None):
                for talk in opened:
                    talk.say(ids)
            return await asyncio.gather(*(talk.reader for talk in opened))

    async with backend(max_sequences=1, max_waiting=4) as engine:
        together = await said(engine, 3)
        assert engine.engine.stats.decode_rows == engine.engine.stats.decode_steps
        assert (await said(engine, 1))[0] == together[0]


async def test_the_number_of_open_streams_is_bounded() -> None:
    async with backend(max_sequences=1, max_waiting=2, retry_after_seconds=4) as engine, talks(engine, 3):
        with pytest.raises(Overloaded, match="has 3 text streams open, no more are accepted") as refused:
            await Talk(engine).reader
        assert refused.value.retry_after == 4
        assert await tokens(engine, sentence(2))


async def test_open_streams_do_not_starve_the_fake_backend() -> None:
    fake = FakeBackend(settings(backend="fake", max_sequences=1, max_waiting=1))
    async with talks(fake, 2):
        assert await asyncio.wait_for(tokens(fake, sentence(2)), 30)
        with pytest.raises(Overloaded, match="2 text streams are open"):
            await Talk(fake).reader
