"""What is fast generates the same tokens as the slow path. The passes for a CPU equal the readable
ones within rounding, and a cached prompt changes no bit. Steps that run ahead of the host: for
whole and arriving text, with replays and cancellation. Sentences whose text arrives take pages as
they grow: the tokens are the same, few pages are enough, and a sentence that gets none does not
affect the others.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.errors import NonFinite, Overloaded
from services.llm.backends.torch_backend import TorchBackend
from services.llm.engine.cpu.passes import CpuPasses
from services.llm.engine.engine import Engine
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits
from services.llm.engine.stepper import ReadablePasses
from services.llm.generation.request import Generation, Profile, Prompt, Sampling
from services.llm.generation.script import START, TASK, Input, speech_inputs, text_inputs
from services.llm.gpu.layout import PAGE
from services.llm.gpu.slots import KvGrowth
from services.llm.gpu.stepper import MOST_CHUNKS, FusedStepper
from tests.stacks.calls import until
from tests.stacks.up_process import TINY, TINY3
from tests.unit.llm.gpu.plain_runner import PlainRunner
from tests.unit.llm.tiny_llm import (
    PROMPT,
    arriving,
    backend,
    both_generations,
    for_both,
    hops,
    model,
    on_engine,
    readable_engine,
    sentence,
    tokens,
    tokens_alone,
)

TEXT = list(range(20, 31))


@contextlib.asynccontextmanager
async def fused(
    running: int = 16, bundle: Path = TINY, **changes: int
) -> AsyncIterator[tuple[TorchBackend, PlainRunner]]:
    decoder = model(bundle=bundle)
    runner = PlainRunner(decoder, **changes)
    limits = Limits(running=running, waiting=16, kv_bytes=runner.pages)
    async with on_engine(Engine(decoder.config, limits, partial(FusedStepper, runner), threads=1)) as served:
        yield served, runner


def streamed(seed: int, profile: Profile = Profile.CONTINUOUS, replay: tuple[int, ...] = ()) -> Generation:
    text = arriving(*(TEXT[at : at + 3] for at in range(0, len(TEXT), 3)))
    sampling = Sampling(seed=seed, profile=profile)
    return for_both(sentence(seed, text=text, prompt=PROMPT, sampling=sampling, replay=replay))


@both_generations
async def test_many_at_once_are_the_slow_path(bundle: Path) -> None:
    profiles = (Profile.CONTINUOUS, Profile.UPSTREAM)
    generations = [
        for_both(
            sentence(
                seed, words=1 + seed % 3, sampling=Sampling(seed=seed, profile=profiles[bundle is TINY3 and seed % 2])
            )
        )
        for seed in range(10)
    ]
    decoder = model(bundle=bundle)
    alone = [tokens_alone(decoder, generation) for generation in generations]
    async with fused(running=6, bundle=bundle) as (served, runner):
        together = await asyncio.gather(*(tokens(served, generation) for generation in generations))
        stats = served.engine.stats
    assert together == alone
    assert max(map(len, runner.steps)) == 6
    assert (stats.running, stats.waiting, stats.reserved_kv_bytes, stats.prefills) == (0, 0, 0, 10)


async def test_a_finished_sentence_runs_at_most_one_discarded_row() -> None:
    async with fused() as (served, runner):
        generated = await tokens(served, sentence(3))
        assert (await hops(served, sentence(3)))[-1].outcome
    assert len(runner.steps) <= 2 * (len(generated) + 2)


@pytest.mark.parametrize(("profile", "seeds"), [(Profile.CONTINUOUS, (0, 1, 2, 3)), (Profile.UPSTREAM, (0,))])
@both_generations
async def test_arriving_text_is_the_slow_path(profile: Profile, seeds: tuple[int, ...], bundle: Path) -> None:
    async with backend(model=bundle) as slow, fused(bundle=bundle) as (served, _):
        for seed in seeds:
            alone, at_once = await asyncio.gather(
                *(tokens(engine, streamed(seed, profile)) for engine in (slow, served)), return_exceptions=True
            )
            assert str(alone) == str(at_once)


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
    long = sentence(2, prompt=Prompt(PROMPT.text_ids, tuple(range(700))))
    async with fused() as (served, runner):
        other = asyncio.create_task(tokens(served, sentence(4, words=6)))
        assert await tokens(served, long) == tokens_alone(model(), long)
        await other
    assert max(runner.chunks) <= 256
    assert len(runner.chunks) >= 3


async def test_prompts_that_come_together_run_before_the_next_step_and_stall_no_sentence_for_long() -> None:
    burst = [sentence(seed, prompt=Prompt(PROMPT.text_ids, tuple(range(600)))) for seed in range(5)]
    async with fused() as (served, runner):
        speaking = asyncio.create_task(tokens(served, sentence(4, words=20)))
        await until(lambda: runner.steps)
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
        await until(lambda: runner.steps)
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
    assert 0 < len(refused) < 4
    assert "no memory is left for a sentence whose text arrives" in refused[0].message
    assert refused[0].retry_after == 1.0
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
        await until(lambda: served.engine.stats.parked == served.engine.stats.prefills == 6)
        assert served.engine.stats.reserved_kv_bytes <= 6 * 2
        gate.set()
        assert all(await asyncio.gather(*waiting))
    assert runner.chunks


VOICE = Prompt(tuple(range(20, 60)), tuple(range(1000, 1045)))
CACHE_BYTES = 1 << 24


@pytest.fixture(autouse=True)
def no_gradient() -> Iterator[None]:
    with torch.inference_mode():
        yield


def slot(on: SpeechTokenModel) -> SequenceCache:
    return SequenceCache.reserve(on.config, 800, on.device)


def prompt(*text: int) -> list[Input]:
    return [START, *text_inputs(VOICE.text_ids + text), TASK, *speech_inputs(VOICE.speech_tokens)]


def close(mine: np.ndarray, reference: np.ndarray) -> None:
    np.testing.assert_allclose(mine, reference, atol=1e-4, rtol=0)


@pytest.mark.parametrize("of_voice", [0, 1 + len(VOICE.text_ids)])
@pytest.mark.parametrize(("text_ids", "bundle"), [(1, TINY), (30, TINY), (220, TINY), (220, TINY3)])
def test_prompt_and_tokens_are_the_readable_ones(text_ids: int, of_voice: int, bundle: Path) -> None:
    """220: more positions than run at once."""
    decoder = model(bundle=bundle)
    passes, reference = CpuPasses(decoder, CACHE_BYTES), ReadablePasses(decoder)
    mine, theirs = slot(decoder), slot(decoder)
    steps = [prompt(*range(60, 60 + text_ids)), *(speech_inputs([token]) for token in (5, 600, 6000, 5, 77, 6560))]
    # Text that arrives later: several positions behind others.
    for inputs in (*steps, [*text_inputs([7, 8, 9, 10, 11]), TASK]):
        close(passes.scores(inputs, mine, of_voice), reference.scores(inputs, theirs, 0))
    assert mine.length == theirs.length == len(steps[0]) + 6 + 6
    for ours, others in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
        torch.testing.assert_close(ours[:, :, : mine.length], others[:, :, : mine.length], atol=1e-4, rtol=0)


@pytest.mark.parametrize("text_ids", [1, 2, 17])
def test_a_kept_prompt_changes_no_bit(text_ids: int) -> None:
    decoder = model()
    warm, cold = CpuPasses(decoder, CACHE_BYTES), CpuPasses(decoder, 0)
    of_voice, inputs = 1 + len(VOICE.text_ids), prompt(*range(text_ids))
    warm.scores(prompt(290, 291, 292), slot(decoder), of_voice)
    assert (len(warm.prompts), len(cold.prompts)) == (1, 0)
    cached, new = slot(decoder), slot(decoder)
    for step in (inputs, speech_inputs([5]), speech_inputs([600])):
        assert np.array_equal(warm.scores(step, cached, of_voice), cold.scores(step, new, of_voice))
    assert (len(warm.prompts), len(cold.prompts)) == (1, 0)


def test_inputs_that_are_all_of_the_voice_are_run() -> None:
    """A text stream whose prompt has all its speech paired begins after the prompt's last token."""
    decoder = model()
    passes, inputs = (
        CpuPasses(decoder, CACHE_BYTES),
        [START, *text_inputs(VOICE.text_ids), *speech_inputs(VOICE.speech_tokens)],
    )
    first, again = (passes.scores(inputs, slot(decoder), len(inputs)) for _ in range(2))
    close(first, ReadablePasses(decoder).scores(inputs, slot(decoder), 0))
    assert np.array_equal(first, again)
    assert len(passes.prompts) == 1


async def test_a_cached_voice_prompt_changes_no_token() -> None:
    text = list(range(30, 41))
    async with backend() as often, backend(prompt_states_mib=0) as uncached:

        async def spoken(engine: TorchBackend) -> list[list[int]]:
            whole = [tokens(engine, sentence(seed, prompt=VOICE)) for seed in range(3)]
            streamed = [
                tokens(engine, sentence(seed, prompt=VOICE, text=arriving(text[:6], text[6:]))) for seed in range(2)
            ]
            return list(await asyncio.gather(*whole, *streamed))

        first = await spoken(often)
        assert first == await spoken(often) == await spoken(uncached)
        assert len({tuple(generated) for generated in first}) == 5


async def test_numbers_that_are_not_finite_end_the_sentence_and_no_other(recwarn: pytest.WarningsRecorder) -> None:
    decoder = model()
    tables = tuple(table.clone() for table in decoder.tables)
    tables[1][77] = torch.inf
    tables[2][:] = torch.where(torch.arange(len(tables[2]))[:, None] == 77, torch.nan, tables[2])
    broken = dataclasses.replace(decoder, tables=tables)
    passes = CpuPasses(broken, CACHE_BYTES)
    async with on_engine(readable_engine(broken, Limits(running=4, waiting=4), passes)) as served:
        for spoilt in (sentence(1, text=(77, 1)), sentence(1, prompt=Prompt((), (77,)))):
            with pytest.raises(NonFinite, match="at token 0"):
                await tokens(served, spoilt)
        assert await tokens(served, sentence(1))
    cache = slot(broken)
    passes.scores(prompt(1), cache, 0)
    scores = passes.scores(speech_inputs([77]), cache, 0)
    assert scores.shape == (broken.config.speech.rows,)
    assert not np.isfinite(scores).any()
    assert not recwarn.list
