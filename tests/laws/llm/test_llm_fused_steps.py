"""Steps that run ahead of the host generate the same tokens as the slow path, for whole and
arriving text, with replays and cancellation.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cosyserve.engines.compatibility import Identity
from cosyserve.errors import NonFinite
from services.llm.backends.torch_backend import TorchBackend
from services.llm.engine.engine import Engine
from services.llm.engine.scheduler import Limits
from services.llm.generation.request import Generation, Profile, Sampling
from services.llm.gpu.stepper import MOST_CHUNKS, FusedStepper
from tests.unit.llm.gpu.plain_runner import PlainRunner
from tests.unit.llm.tiny_llm import PROMPT, arriving, backend, hops, model, sentence, tokens, tokens_alone

TEXT = list(range(20, 31))


@contextlib.asynccontextmanager
async def fused(running: int = 16, **changes: int) -> AsyncIterator[tuple[TorchBackend, PlainRunner]]:
    decoder = model()
    runner = PlainRunner(decoder, **changes)
    limits = Limits(running=running, waiting=16, kv_bytes=runner.pages)
    engine = Engine(decoder, limits, threads=1, steps=lambda stats, remove: FusedStepper(runner, stats, remove))
    served = TorchBackend(engine, Identity("tiny", "torch", "float32", "cpu"), 2048)
    try:
        yield served, runner
    finally:
        await served.close()


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


async def test_a_sentence_that_is_over_runs_one_row_in_vain_at_most() -> None:
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


async def test_a_cancelled_sentence_frees_its_seat() -> None:
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


async def test_numbers_that_are_none_end_their_sentence_only() -> None:
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
