"""Steps that run ahead of the host generate the same tokens as the slow path, for whole and
arriving text, with replays and cancellation. Sentences whose text arrives take pages as they grow:
the tokens are the same, few pages are enough, and a sentence that gets none does not affect the
others.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

import pytest

from cosyserve.errors import NonFinite, Overloaded
from services.llm.backends.torch_backend import TorchBackend
from services.llm.engine.engine import Engine
from services.llm.engine.scheduler import Limits
from services.llm.generation.request import Generation, Profile, Sampling
from services.llm.gpu.layout import PAGE
from services.llm.gpu.slots import KvGrowth
from services.llm.gpu.stepper import MOST_CHUNKS, FusedStepper
from tests.unit.llm.gpu.plain_runner import PlainRunner
from tests.unit.llm.tiny_llm import PROMPT, arriving, backend, hops, model, on_engine, sentence, tokens, tokens_alone

TEXT = list(range(20, 31))


@contextlib.asynccontextmanager
async def fused(running: int = 16, **changes: int) -> AsyncIterator[tuple[TorchBackend, PlainRunner]]:
    decoder = model()
    runner = PlainRunner(decoder, **changes)
    limits = Limits(running=running, waiting=16, kv_bytes=runner.pages)
    engine = Engine(decoder.config, limits, partial(FusedStepper, runner), threads=1)
    async with on_engine(engine) as served:
        yield served, runner


def streamed(seed: int, profile: Profile = Profile.CONTINUOUS, replay: tuple[int, ...] = ()) -> Generation:
    text = arriving(*(TEXT[at : at + 3] for at in range(0, len(TEXT), 3)))
    return sentence(seed, text=text, prompt=PROMPT, sampling=Sampling(seed=seed, profile=profile), replay=replay)


async def test_many_at_once_are_the_slow_path() -> None:
    generations = [sentence(seed, words=1 + seed % 3) for seed in range(10)]
    alone = [tokens_alone(model(), generation) for generation in generations]
    async with fused(running=6) as (served, runner):
        together = await asyncio.gather(*(tokens(served, generation) for generation in generations))
        stats = served.engine.stats
    assert together == alone
    assert max(len(rows) for rows in runner.steps) == 6
    assert (stats.running, stats.waiting, stats.reserved_kv_bytes, stats.prefills) == (0, 0, 0, 10)


async def test_a_finished_sentence_runs_at_most_one_discarded_row() -> None:
    async with fused() as (served, runner):
        generated = await tokens(served, sentence(3))
        outcome = (await hops(served, sentence(3)))[-1].outcome
    assert outcome is not None
    assert len(runner.steps) <= 2 * (len(generated) + 2)


@pytest.mark.parametrize(("profile", "seeds"), [(Profile.CONTINUOUS, (0, 1, 2, 3)), (Profile.UPSTREAM, (0,))])
async def test_arriving_text_is_the_slow_path(profile: Profile, seeds: tuple[int, ...]) -> None:
    async with backend() as slow, fused() as (served, _):
        for seed in seeds:
            try:
                expected: list[int] | str = await tokens(slow, streamed(seed, profile))
            except Exception as error:
                expected = str(error)
            try:
                result: list[int] | str = await tokens(served, streamed(seed, profile))
            except Exception as error:
                result = str(error)
            assert result == expected


async def test_replayed_is_uninterrupted() -> None:
    async with fused() as (served, _):
        for kind in (streamed, lambda seed, replay=(): sentence(seed, words=2, prompt=PROMPT, replay=replay)):
            whole = await tokens(served, kind(9))
            for replayed in (1, len(whole) // 2, len(whole)):
                assert await tokens(served, kind(9, replay=tuple(whole[:replayed]))) == whole[replayed:]


async def test_a_cancelled_sentence_frees_its_slot() -> None:
    async with fused(slots=32, pages=48) as (served, runner):
        for _ in range(6):
            async with contextlib.aclosing(served.generate(sentence(1, words=30))) as received:
                async for hop in received:
                    if hop.tokens:
                        break
        assert await tokens(served, sentence(2)) == tokens_alone(model(), sentence(2))
        stats = served.engine.stats
    assert (stats.running, stats.reserved_kv_bytes) == (0, 0)
    assert runner.chunks


async def test_non_finite_numbers_end_their_sentence_only() -> None:
    async with fused() as (served, runner):
        runner.broken_slots = {1}
        results = await asyncio.gather(*(tokens(served, sentence(seed)) for seed in range(4)), return_exceptions=True)
        assert [type(result) for result in results].count(NonFinite) == 1
        good = [(seed, result) for seed, result in enumerate(results) if not isinstance(result, BaseException)]
        assert all(result == tokens_alone(model(), sentence(seed)) for seed, result in good)


async def test_long_prompts_run_in_chunks_between_steps() -> None:
    long = sentence(2, prompt=type(PROMPT)(PROMPT.text_ids, tuple(range(700))))
    async with fused() as (served, runner):
        other = asyncio.create_task(tokens(served, sentence(4, words=6)))
        assert await tokens(served, long) == tokens_alone(model(), long)
        await other
    assert max(runner.chunks) <= 256
    assert len(runner.chunks) >= 3


async def test_prompts_that_come_together_run_before_the_next_step_and_stall_no_sentence_for_long() -> None:
    long = tuple(range(600))
    burst = [sentence(seed, prompt=type(PROMPT)(PROMPT.text_ids, long)) for seed in range(5)]
    async with fused() as (served, runner):
        speaking = asyncio.create_task(tokens(served, sentence(4, words=20)))
        while not runner.steps:
            await asyncio.sleep(0)
        runner.order.clear()
        await asyncio.gather(*(tokens(served, one) for one in burst), speaking)
        runs = "".join(kind[0] for kind in runner.order).split("s")
    # 5 prompts of 600 positions and more are 12 chunks at least: never more than a few in a row,
    # and as many as may while they wait.
    assert sum(map(len, runs)) >= 12
    assert max(map(len, runs)) == MOST_CHUNKS


def long_stream(seed: int, blocks: int = 8) -> Generation:
    text = arriving(*([20 + (seed + at) % 40] * 5 for at in range(blocks)))
    return sentence(seed, text=text, prompt=PROMPT, sampling=Sampling(seed=seed))


async def test_pages_come_as_it_grows_and_change_nothing() -> None:
    async with backend() as slow:
        expected = [await tokens(slow, long_stream(seed)) for seed in range(2)]
    async with fused(slots=48, pages=2048 // PAGE * 3) as (served, runner):
        results = await asyncio.gather(*(tokens(served, long_stream(seed)) for seed in range(2)))
        assert served.engine.stats.reserved_kv_bytes == 0
    assert list(results) == expected
    assert min(map(len, results)) > 4 * PAGE
    # Each has what it needed and a page more at most, out of the 32 that it might have come to.
    assert all(len(table) <= -(-runner.caches[slot].length // PAGE) + 1 for slot, table in runner.tables.items())
    assert min(map(len, runner.tables.values())) > 4


async def test_a_sentence_without_a_free_page_pauses_until_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []
    is_stuck = KvGrowth.stuck
    monkeypatch.setattr(KvGrowth, "stuck", lambda self, *who: waited.append(is_stuck(self, *who)) or waited[-1])
    async with backend() as slow:
        expected = await tokens(slow, long_stream(1))
    whole = [sentence(seed, words=12) for seed in range(4)]
    alone = [tokens_alone(model(), one) for one in whole]
    async with fused(running=8, slots=48, pages=32) as (served, runner):
        stream = asyncio.create_task(tokens(served, long_stream(1)))
        while not runner.steps:
            await asyncio.sleep(0)
        others = await asyncio.gather(*(tokens(served, one) for one in whole * 3))
        assert await stream == expected
    assert others == alone * 3
    assert any(waited)


async def test_the_last_of_sentences_that_all_wait_for_pages_ends_and_changes_no_other() -> None:
    async with backend() as slow:
        expected = {seed: await tokens(slow, long_stream(seed)) for seed in range(4)}
    pages = max(map(len, expected.values())) * 2 // PAGE + 4
    async with fused(running=8, slots=48, pages=max(pages, 2048 // PAGE)) as (served, _):
        # All of the memory is taken by streams that cannot end in it.
        results = await asyncio.gather(
            *(tokens(served, long_stream(seed)) for seed in range(4)), return_exceptions=True
        )
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
