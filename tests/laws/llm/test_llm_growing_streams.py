"""Sentences whose text arrives over time take pages as they grow: the tokens are the same, few
pages are enough, and a sentence that gets none does not affect the others.
"""

import asyncio

import pytest

from cosyserve.errors import Overloaded
from services.llm.generation.request import Generation, Sampling
from services.llm.gpu.kv_slots import KvGrowth
from services.llm.gpu.layout import PAGE
from tests.laws.llm.test_llm_fused_steps import fused
from tests.unit.llm.tiny_llm import PROMPT, arriving, backend, model, sentence, tokens, tokens_alone


def streamed(seed: int, blocks: int = 8) -> Generation:
    text = arriving(*([20 + (seed + at) % 40] * 5 for at in range(blocks)))
    return sentence(seed, text=text, prompt=PROMPT, sampling=Sampling(seed=seed))


async def test_pages_come_as_it_grows_and_change_nothing() -> None:
    async with backend() as slow:
        expected = [await tokens(slow, streamed(seed)) for seed in range(2)]
    async with fused(slots=48, pages=2048 // PAGE * 3) as (served, runner):
        results = await asyncio.gather(*(tokens(served, streamed(seed)) for seed in range(2)))
        assert served.engine.stats.reserved_kv_bytes == 0
    assert list(results) == expected
    assert min(map(len, results)) > 4 * PAGE
    # Each has what it needed and a page more at most, out of the 32 that it might have come to.
    assert all(len(table) <= -(-runner.caches[slot].length // PAGE) + 1 for slot, table in runner.tables.items())
    assert min(map(len, runner.tables.values())) > 4


async def test_who_finds_no_page_waits_where_it_is_until_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []
    is_stuck = KvGrowth.stuck
    monkeypatch.setattr(KvGrowth, "stuck", lambda self, *who: waited.append(is_stuck(self, *who)) or waited[-1])
    async with backend() as slow:
        expected = await tokens(slow, streamed(1))
    whole = [sentence(seed, words=12) for seed in range(4)]
    alone = [tokens_alone(model(), one) for one in whole]
    async with fused(running=8, slots=48, pages=32) as (served, runner):
        stream = asyncio.create_task(tokens(served, streamed(1)))
        while not runner.steps:
            await asyncio.sleep(0)
        others = await asyncio.gather(*(tokens(served, one) for one in whole * 3))
        assert await stream == expected
    assert others == alone * 3
    assert any(waited)


async def test_the_last_that_came_is_ended_when_only_such_are_left_and_the_others_do_not_notice() -> None:
    async with backend() as slow:
        expected = {seed: await tokens(slow, streamed(seed)) for seed in range(4)}
    pages = max(map(len, expected.values())) * 2 // PAGE + 4
    async with fused(running=8, slots=48, pages=max(pages, 2048 // PAGE)) as (served, _):
        # All of the memory is taken by streams that cannot end in it.
        results = await asyncio.gather(*(tokens(served, streamed(seed)) for seed in range(4)), return_exceptions=True)
        assert await tokens(served, sentence(2)) == tokens_alone(model(), sentence(2))
        stats = served.engine.stats
    refused = [result for result in results if isinstance(result, Overloaded)]
    assert refused
    assert "no memory is left for a sentence whose text arrives" in refused[0].message
    assert refused[0].retry_after == 1.0
    assert len(refused) < 4
    for seed, result in enumerate(results):
        assert isinstance(result, Overloaded) or result == expected[seed]
    assert (stats.running, stats.reserved_kv_bytes) == (0, 0)


@pytest.mark.parametrize("pages", [33, 40])
async def test_streams_that_wait_for_text_hold_what_they_filled_and_no_more(pages: int) -> None:
    async with fused(running=4, slots=48, pages=pages) as (served, runner):
        gate = asyncio.Event()

        async def text():  # type: ignore[no-untyped-def]
            yield [20, 21, 22, 23, 24]
            await gate.wait()
            yield [25, 26]

        waiting = [asyncio.create_task(tokens(served, sentence(seed, text=text(), prompt=PROMPT))) for seed in range(6)]
        while served.engine.stats.parked < 6 or served.engine.stats.prefills < 6:
            await asyncio.sleep(0.001)
        assert served.engine.stats.reserved_kv_bytes <= 6 * 2
        gate.set()
        assert all(await asyncio.gather(*waiting))
    assert runner.chunks
