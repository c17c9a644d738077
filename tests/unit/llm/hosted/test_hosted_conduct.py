"""Behaviour of a hosted backend: a cancelled sentence is aborted, one too many is refused, a
failure is reported, and closing ends all runs.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from cosyserve.errors import InternalFault, InvalidRequest, ModelError, NonFinite, Overloaded, Unavailable
from cosyserve.file_lock import is_locked
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from services.llm.generation.request import Grouping, Profile, Prompt, Sampling
from services.llm.hosted import conversion, hosted_backend
from services.llm.hosted.hosted_backend import MOST_FAILED_RUNS, HostedBackend
from tests.stacks.calls import all_of, until
from tests.unit.llm.hosted.hosts import SEAMS, backend_of, engine_of, first_row, host, hosted, library, load
from tests.unit.llm.tiny_llm import PROMPT, arriving, hops, sentence, tokens

TOKEN_BY_TOKEN = Grouping(first=1, rest=1)


@pytest.fixture(params=SEAMS)
async def ours(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> AsyncIterator[HostedBackend]:
    async with hosted(
        request.param, monkeypatch, converted, max_sequences=2, max_waiting=1, retry_after_seconds=3
    ) as backend:
        yield backend


async def idle(backend: HostedBackend) -> None:
    """Until nothing runs."""
    await until(lambda: not (engine_of(backend).active or backend.admission.admitted), 120)


broken = Mock(side_effect=ZeroDivisionError)


@pytest.mark.parametrize("by_task", [False, True])
async def test_a_cancelled_sentence_is_aborted_and_computes_no_more(ours: HostedBackend, by_task: bool) -> None:
    stream = ours.generate(sentence(1, words=50, grouping=TOKEN_BY_TOKEN))
    for _ in range(3):
        await anext(stream)
    if by_task:
        reader = asyncio.create_task(all_of(stream))
        await asyncio.sleep(0.01)
        reader.cancel()
        await asyncio.wait([reader])
        assert reader.cancelled()
    else:
        await stream.aclose()
    await idle(ours)
    assert engine_of(ours).aborts == 1
    assert engine_of(ours).steps < 200
    assert await tokens(ours, sentence(2))


async def test_the_first_hop_is_empty_and_comes_before_any_work(ours: HostedBackend) -> None:
    engine_of(ours).hold.clear()
    async with contextlib.aclosing(ours.generate(sentence(1))) as stream:
        assert ((await anext(stream)).tokens, engine_of(ours).steps) == ([], 0)
    engine_of(ours).hold.set()


async def test_one_too_many_is_refused_and_comes_in_later(ours: HostedBackend) -> None:
    engine_of(ours).hold.clear()
    streams = [ours.generate(sentence(seed)) for seed in range(3)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(Overloaded, match="3 sentences are admitted") as refused:
        await tokens(ours, sentence(4))
    assert refused.value.retry_after == 3
    open_text = [ours.generate(sentence(seed, text=never())) for seed in range(3)]
    for stream in open_text:
        await anext(stream)
    with pytest.raises(Overloaded, match="3 text streams are open"):
        await tokens(ours, sentence(4, text=arriving([1])))
    engine_of(ours).hold.set()
    for stream in open_text:
        await stream.aclose()
    for stream in streams:
        assert await all_of(stream)
    assert await tokens(ours, sentence(4))
    assert engine_of(ours).most_at_once <= 2


async def never() -> AsyncIterator[list[int]]:
    yield [1, 2]
    await asyncio.Event().wait()


async def test_non_finite_numbers_end_that_sentence_alone(ours: HostedBackend) -> None:
    rows = itertools.count()
    engine_of(ours).spoil = lambda row: torch.full_like(row, torch.nan) if next(rows) == 5 else row
    with pytest.raises(NonFinite, match="at token 5"):
        await tokens(ours, sentence(1, words=4))
    await idle(ours)
    assert await tokens(ours, sentence(1, words=4))


async def test_an_engine_that_fails_again_and_again_is_given_up(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    faults: list[str] = []
    async with hosted("tensorrt_llm", monkeypatch, converted, on_fault=faults.append) as ours:
        engine_of(ours).spoil = broken
        for _ in range(MOST_FAILED_RUNS):
            assert not faults
            with pytest.raises(InternalFault, match="the speech-token engine failed: RuntimeError"):
                await tokens(ours, sentence(1))
        assert faults == ["the speech-token engine failed with RuntimeError and has to be restarted"]
        with pytest.raises(InternalFault, match="has to be restarted"):
            await tokens(ours, sentence(1))


async def test_failures_far_apart_are_no_broken_engine(ours: HostedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(MOST_FAILED_RUNS + 1):
        engine_of(ours).spoil = broken
        with pytest.raises(InternalFault, match="the speech-token engine failed"):
            await tokens(ours, sentence(1))
        engine_of(ours).spoil = lambda row: row
        assert await tokens(ours, sentence(1))


async def test_an_engine_without_results_is_given_up_and_all_sentences_end(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    faults: list[str] = []
    async with hosted("tensorrt_llm", monkeypatch, converted, on_fault=faults.append, max_sequences=2) as ours:
        monkeypatch.setattr(hosted_backend, "SILENT_SECONDS", 0.2)
        engine_of(ours).hold.clear()
        ended = await asyncio.gather(*(tokens(ours, sentence(seed)) for seed in range(3)), return_exceptions=True)
        assert {type(one) for one in ended} == {InternalFault}
        assert faults == ["the speech-token engine failed with EngineSilent and has to be restarted"]
        engine_of(ours).hold.set()


async def test_a_dead_vllm_is_given_up_at_once(monkeypatch: pytest.MonkeyPatch, converted: Path) -> None:
    faults: list[str] = []
    async with hosted("vllm", monkeypatch, converted, on_fault=faults.append) as ours:
        assert await tokens(ours, sentence(1))
        host(ours).errored = True
        with pytest.raises(InternalFault):
            await tokens(ours, sentence(1))
        assert len(faults) == 1


async def test_closing_ends_running_waiting_and_open_sentences(ours: HostedBackend) -> None:
    engine_of(ours).hold.clear()
    ended = [
        asyncio.create_task(tokens(ours, one))
        for one in (sentence(1), sentence(2), sentence(3), sentence(4, text=never()))
    ]
    await until(lambda: ours.admission.admitted == 4)
    engine_of(ours).hold.set()
    await ours.close()
    assert [type(result) for result in await asyncio.gather(*ended, return_exceptions=True)] == [Unavailable] * 4
    assert host(ours).shut_down
    with pytest.raises(Unavailable, match="shutting down"):
        await tokens(ours, sentence(5))


async def test_impossible_requests_are_refused_before_any_work(ours: HostedBackend) -> None:
    impossible = {
        "98 ids, which with this prompt": sentence(1, prompt=PROMPT, text=(1,) * 98),
        "profile upstream feeds inputs twice": sentence(
            1, text=arriving([1]), sampling=Sampling(profile=Profile.UPSTREAM)
        ),
        "text has 0 ids": sentence(1, text=arriving()),
        "text has more than": sentence(1, prompt=Prompt(), text=arriving([1] * 200)),
    }
    for message, wanted in impossible.items():
        with pytest.raises(InvalidRequest, match=message):
            await tokens(ours, wanted)
    assert (engine_of(ours).active, ours.admission.admitted) == (0, 0)


async def test_a_sentence_that_finds_no_end_is_as_long_as_it_may_be(ours: HostedBackend) -> None:
    def endless(row: torch.Tensor) -> torch.Tensor:
        row[first_row(ours) + COSYVOICE2.speech.end] = -1e4
        return row

    engine_of(ours).spoil = endless
    outcome = (await hops(ours, sentence(1, words=2)))[-1].outcome
    assert (outcome.reason.value, outcome.tokens) == ("length", 40)


@pytest.mark.parametrize("kind", SEAMS)
async def test_warm_up_leaves_nothing_behind(kind: str, monkeypatch: pytest.MonkeyPatch, converted: Path) -> None:
    with library(kind, monkeypatch):
        backend = load(kind, converted)
        assert backend.identity.backend == backend_of(kind)
        assert "float32" in backend.identity.precision
        assert backend_of(kind) in backend.identity.device
        await backend.warm_up()
        await idle(backend)
        await backend.close()


@pytest.mark.parametrize("kind", SEAMS)
async def test_an_engine_that_cannot_be_shut_down_gives_its_files_back(
    kind: str, monkeypatch: pytest.MonkeyPatch, converted: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing a failed engine must not raise, so that the next candidate can be loaded."""
    served = (converted.with_name("vllm") if kind == "vllm embeddings" else converted) / "manifest.json"

    with library(kind, monkeypatch):
        backend = load(kind, converted)
        assert is_locked(served)
        monkeypatch.setattr(host(backend), "shutdown", Mock(side_effect=RuntimeError("no process answers")))
        await backend.close()
        engine_of(backend).close()
    assert not is_locked(served)
    assert "could not be shut down" in caplog.text


@pytest.mark.parametrize("kind", SEAMS)
def test_a_conversion_that_goes_while_it_is_loaded_is_a_reason(
    kind: str, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    monkeypatch.setattr(conversion, "shared_engine_lock", Mock(side_effect=FileNotFoundError))
    with library(kind, monkeypatch), pytest.raises(ModelError, match="cannot be held while it is served"):
        load(kind, converted)


async def test_an_engine_that_samples_without_the_processor_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    async with hosted("tensorrt_llm", monkeypatch, converted) as ours:
        host(ours).passes_over = 3
        for drawn, message in (
            (5, "id 5, which is no speech token"),
            (ours._vocabulary.text_ids + 17, "sampled a token without its logits processor"),
        ):
            host(ours).passes_to = drawn
            with pytest.raises(InternalFault, match=message):
                await tokens(ours, sentence(1, words=4))
