"""How a sentence and an engine end. A cancelled sentence: no further pass begins for it, and its
memory is free at once. An engine that has failed reports it and accepts no more sentences; a single
failed pass does not stop it.
"""

import asyncio
import contextlib
import threading
import time
import traceback
import weakref
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from cosyserve.engines.device_loss import LossReason
from cosyserve.errors import CallersDeadline, DeviceLost, InternalFault, InvalidRequest, Overloaded, Unavailable
from services.llm.backends.torch_backend import TorchBackend
from services.llm.engine.kv_cache import SequenceCache, cache_bytes
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits, Scheduler
from services.llm.generation.request import Grouping, Hop
from tests.stacks.calls import all_of, until
from tests.unit.llm.tiny_llm import arriving, model, on_engine, readable_engine, sentence, tokens

TOKEN_BY_TOKEN = Grouping(first=1, rest=1)


class WatchedModel(SpeechTokenModel):
    """Counts passes by slot; with `hold` a pass waits in the middle, as a long one would; `broken`
    makes it fail or produce non-numbers.
    """

    @classmethod
    def of(cls, plain: SpeechTokenModel) -> "WatchedModel":
        watched = cls(**vars(plain))
        vars(watched).update(passes=[], entered=threading.Event(), hold=threading.Event(), broken=lambda hidden: hidden)
        watched.hold.set()
        return watched

    def passes_of(self, slot: weakref.ref[SequenceCache]) -> int:
        return sum(begun is slot for begun in self.passes)

    def forward(self, embeddings: Tensor, cache: SequenceCache) -> Tensor:
        self.passes.append(weakref.ref(cache))
        self.entered.set()
        assert self.hold.wait(20)
        return self.broken(super().forward(embeddings, cache))

    def forward_rows(self, embeddings: Tensor, caches: list[SequenceCache]) -> Tensor:  # type: ignore[override]
        return self.broken(super().forward_rows(embeddings, caches))


@contextlib.asynccontextmanager
async def watched(
    limits: Limits, positions: int = 2048, **options: Any
) -> AsyncIterator[tuple[TorchBackend, WatchedModel]]:
    decoder = WatchedModel.of(model())
    async with on_engine(readable_engine(decoder, limits, **options), positions) as backend:
        try:
            yield backend, decoder
        finally:
            decoder.hold.set()


async def held(decoder: WatchedModel) -> None:
    """Let the next pass begin and stop it in the middle."""
    decoder.hold.clear()
    decoder.entered.clear()
    assert await asyncio.to_thread(decoder.entered.wait, 20)


async def first_token(stream: AsyncGenerator[Hop]) -> None:
    """After the hop that reports acceptance."""
    assert (await anext(stream)).tokens == []
    assert len((await anext(stream)).tokens) == 1


@pytest.mark.parametrize("by_task", [False, True])
async def test_a_closed_sentence_is_not_stepped_and_holds_nothing(by_task: bool) -> None:
    async with watched(Limits(running=2, waiting=0)) as (backend, decoder):
        stream = backend.generate(sentence(1, words=50, grouping=TOKEN_BY_TOKEN))
        for _ in range(3):
            await anext(stream)
        await held(decoder)
        slot = decoder.passes[-1]
        begun = decoder.passes_of(slot)
        assert backend.engine.stats.reserved_kv_bytes > 0
        if by_task:
            reader = asyncio.create_task(all_of(stream))
            await asyncio.sleep(0)
            reader.cancel()
            await asyncio.wait([reader])
            assert reader.cancelled()
        else:
            await stream.aclose()
        stats = backend.engine.stats
        assert (stats.running, stats.reserved_kv_bytes) == (0, 0)
        decoder.hold.set()
        await tokens(backend, sentence(2))
        await tokens(backend, sentence(3))
        assert decoder.passes_of(slot) == begun
        assert slot() is None


async def test_a_waiting_sentence_that_is_cancelled_never_begins() -> None:
    async with watched(Limits(running=1, waiting=4)) as (backend, decoder):
        first = backend.generate(sentence(1, words=50, grouping=TOKEN_BY_TOKEN))
        await first_token(first)
        waiting = asyncio.create_task(tokens(backend, sentence(2)))
        await held(decoder)
        assert backend.engine.stats.waiting == 1
        waiting.cancel()
        await asyncio.wait([waiting])
        assert backend.engine.stats.waiting == 0
        decoder.hold.set()
        await first.aclose()
        assert backend.engine.stats.prefills == 1


async def test_a_parked_sentence_is_not_stepped_and_wakes_up_by_text() -> None:
    gate = asyncio.Event()

    async def text() -> AsyncIterator[list[int]]:
        yield [1, 2, 3, 4, 5]
        await gate.wait()
        yield [6, 7, 8, 9, 10]

    async with watched(Limits(running=2, waiting=0)) as (backend, decoder):
        stream = backend.generate(sentence(0, text=text(), grouping=TOKEN_BY_TOKEN))
        await first_token(stream)
        await until(lambda: backend.engine.stats.parked)
        passes = len(decoder.passes)
        other = await tokens(backend, sentence(2))
        assert len(decoder.passes) == passes + len(other) + (len(other) < 60)
        gate.set()
        assert [hop async for hop in stream][-1].outcome
        assert backend.engine.stats.reserved_kv_bytes == 0


async def test_hanging_up_while_parked_frees_the_slot() -> None:
    async def text() -> AsyncIterator[list[int]]:
        yield [1, 2, 3, 4, 5]
        await asyncio.Event().wait()

    async with watched(Limits(running=1, waiting=0)) as (backend, _):
        reader = asyncio.create_task(tokens(backend, sentence(0, text=text())))
        await until(lambda: backend.engine.stats.parked and backend.engine.stats.prefills)
        assert backend.engine.stats.reserved_kv_bytes == cache_bytes(backend.engine.config, 2048)
        reader.cancel()
        await asyncio.wait([reader])
        assert backend.engine.stats.reserved_kv_bytes == 0
        assert await tokens(backend, sentence(2))


async def test_one_more_than_run_and_wait_is_refused_with_a_hint() -> None:
    async with watched(Limits(running=1, waiting=1, retry_after=2.5)) as (backend, decoder):
        first = asyncio.create_task(tokens(backend, sentence(1)))
        await held(decoder)
        second = asyncio.create_task(tokens(backend, sentence(2)))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="runs 1 sentences and 1 wait") as refused:
            await tokens(backend, sentence(3))
        assert refused.value.retry_after == 2.5
        decoder.hold.set()
        assert all(await asyncio.gather(first, second))


async def test_memory_for_keys_and_values_bounds_who_runs() -> None:
    slot = cache_bytes(model().config, 2 + 3 + 60)
    async with watched(Limits(running=8, waiting=8, kv_bytes=2 * slot + slot // 2)) as (backend, decoder):
        requests = [
            asyncio.create_task(tokens(backend, sentence(7 * seed, prompt=sentence(0).prompt))) for seed in range(4)
        ]
        await held(decoder)
        stats = backend.engine.stats
        assert (stats.running, stats.waiting, stats.reserved_kv_bytes) == (2, 2, 2 * slot)
        with pytest.raises(InvalidRequest, match="positions"):
            await tokens(backend, sentence(1, words=20))
        decoder.hold.set()
        assert all(await asyncio.gather(*requests))


async def test_a_failing_pass_ends_its_sentence_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with watched(Limits(running=4, waiting=0)) as (backend, decoder):
        expected = await tokens(backend, sentence(2))
        other = asyncio.create_task(tokens(backend, sentence(2)))
        poisoned: list[int] = []

        def fail_on_long(hidden: Tensor) -> Tensor:
            if len(hidden) > 30 and not poisoned:
                poisoned.append(1)
                raise RuntimeError("device on fire")
            return hidden * float("nan") if len(hidden) > 30 else hidden

        object.__setattr__(decoder, "broken", fail_on_long)
        for message in ("failed: RuntimeError", "non-finite log-probabilities at token 0"):
            with pytest.raises(InternalFault, match=message):
                await tokens(backend, sentence(1, words=40))
        assert await other == expected == await tokens(backend, sentence(2))
        assert backend.engine.stats.reserved_kv_bytes == 0
    assert "device on fire" in caplog.text


async def test_a_lost_gpu_ends_all_sentences_so_that_another_replica_can_take_them() -> None:
    reported: list[str] = []
    async with watched(Limits(running=2, waiting=2), on_fault=reported.append) as (backend, decoder):

        def lose(hidden: Tensor) -> Tensor:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        object.__setattr__(decoder, "broken", lose)
        results = await asyncio.gather(*[tokens(backend, sentence(seed)) for seed in (1, 2, 3)], return_exceptions=True)
        assert [type(result) for result in results] == [DeviceLost] * 3
        with pytest.raises(DeviceLost):
            await tokens(backend, sentence(4))
    assert [isinstance(reason, LossReason) for reason in reported] == [True]


async def test_a_sentence_that_waits_is_dropped_when_its_caller_gives_up() -> None:
    """One runs, three wait: for one that is late, one that will be before its first pass is over,
    and one in time.
    """
    async with watched(Limits(running=1, waiting=4)) as (backend, decoder):
        await tokens(backend, sentence(2))  # now the engine knows what a first pass takes at least
        shortest = backend.engine._scheduler.shortest_prefill
        assert shortest > 0
        first = backend.generate(sentence(1, words=50, grouping=TOKEN_BY_TOKEN))
        await first_token(first)
        await held(decoder)
        now = time.monotonic()
        deadlines = (now, now + shortest / 2, now + 60.0)
        waiting = [asyncio.create_task(tokens(backend, sentence(2, deadline=deadline))) for deadline in deadlines]
        await until(lambda: backend.engine.stats.waiting == 3)
        decoder.hold.set()
        late, too_late, in_time = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in (late, too_late)] == [CallersDeadline] * 2
        assert isinstance(in_time, list)
        assert backend.engine.stats.prefills == 3
        await first.aclose()


async def test_a_sentence_under_way_ends_with_its_caller() -> None:
    async with watched(Limits(running=1, waiting=0)) as (backend, decoder):
        stream = backend.generate(sentence(1, words=50, grouping=TOKEN_BY_TOKEN, deadline=time.monotonic() + 0.3))
        await first_token(stream)
        await held(decoder)
        await asyncio.sleep(0.3)
        passes = len(decoder.passes)
        decoder.hold.set()
        with pytest.raises(CallersDeadline):
            await all_of(stream)
        assert len(decoder.passes) <= passes + 1
        assert backend.engine.stats.running == 0


async def test_closing_the_engine_ends_all_sentences() -> None:
    async with watched(Limits(running=1, waiting=1)) as (backend, decoder):
        requests = [asyncio.create_task(tokens(backend, sentence(seed))) for seed in (1, 2)]
        await held(decoder)
        closing = asyncio.create_task(backend.close())
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(result) for result in results] == [Unavailable, Unavailable]
        decoder.hold.set()
        await closing
        with pytest.raises(Unavailable, match="shutting down"):
            await tokens(backend, sentence(3))


async def test_a_broken_text_stream_ends_the_sentence() -> None:
    async def text() -> AsyncIterator[list[int]]:
        yield [1, 2, 3, 4, 5, 6]
        raise InvalidRequest("text.ids[0] is 900, allowed 0 to 299")

    async with watched(Limits(running=1, waiting=0), positions=128) as (backend, _):
        for written, message in (
            (text(), "900"),
            (arriving([]), "0 ids"),
            (arriving([1, 2, 3], [4, 5, 6], [7]), "more than 6 ids"),
        ):
            with pytest.raises(InvalidRequest, match=message):
                await tokens(backend, sentence(0, text=written))
        assert backend.engine.stats.reserved_kv_bytes == 0


def test_engine_threads_leave_with_the_engine() -> None:
    readable_engine(model(), Limits(running=1, waiting=0)).close()
    assert "llm-engine" not in {thread.name for thread in threading.enumerate()}
    assert torch.get_num_threads() == 1


@contextlib.asynccontextmanager
async def failing(*, batch_invariant: bool = True) -> AsyncIterator[tuple[TorchBackend, list[int], list[str]]]:
    """A backend, the number of passes that fail from now on as those of a device do, with an error
    that is not ours, and the reasons given to on_fault.
    """
    failures, faults = [0], list[str]()

    def fail(hidden: Tensor) -> Tensor:
        if failures[0]:
            failures[0] -= 1
            raise RuntimeError("device-side assert triggered")
        return hidden

    options = {"batch_invariant": batch_invariant, "on_fault": faults.append}
    async with watched(Limits(running=4, waiting=4), **options) as (backend, decoder):
        object.__setattr__(decoder, "broken", fail)
        yield backend, failures, faults


async def fails(backend: TorchBackend, message: str, kind: type[Exception] = InternalFault) -> Exception:
    """The error of a sentence."""
    with pytest.raises(kind, match=message) as caught:
        await tokens(backend, sentence(2))
    return caught.value


@pytest.mark.parametrize("batch_invariant", [True, False])
async def test_three_failed_passes_in_a_row_end_the_engine(
    batch_invariant: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with failing(batch_invariant=batch_invariant) as (backend, failures, faults):
        failures[0] = 3
        for _ in range(3):
            await fails(backend, "failed: RuntimeError")
        await asyncio.to_thread(backend.engine._thread.join, 20)
        assert faults == ["the speech-token engine failed with PassesFail and has to be restarted"]
        await fails(backend, "failed with PassesFail and has to be restarted")
    assert "device-side assert triggered" in caplog.text


async def test_two_failed_passes_and_a_good_one_do_not() -> None:
    async with failing() as (backend, failures, faults):
        for _ in range(2):
            failures[0] = 2
            await fails(backend, "failed: RuntimeError")
            await fails(backend, "failed: RuntimeError")
            assert await tokens(backend, sentence(2))
        assert faults == []


async def test_memory_that_cannot_be_had_counts_as_a_failed_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device in error the slot of the next sentence may be what fails first."""
    async with failing() as (backend, _, faults):
        with monkeypatch.context() as patch:
            patch.setattr(torch, "empty", Mock(side_effect=RuntimeError("device-side assert triggered")))
            for _ in range(3):
                await fails(backend, "failed: RuntimeError")
            await asyncio.to_thread(backend.engine._thread.join, 20)
        assert len(faults) == 1


async def test_an_engine_thread_that_dies_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with failing() as (backend, _, faults):
        monkeypatch.setattr(Scheduler, "next", Mock(side_effect=KeyError("policy")))
        await fails(backend, "failed with KeyError")
        await asyncio.to_thread(backend.engine._thread.join, 20)
        assert faults == ["the speech-token engine failed with KeyError and has to be restarted"]


async def test_each_request_to_a_closed_engine_gets_its_own_error() -> None:
    async with failing() as (backend, _, _faults):
        await backend.close()
        refusals = [await fails(backend, "shutting down", Unavailable) for _ in range(3)]
    assert len({id(error) for error in refusals}) == 3
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in refusals}) == 1
