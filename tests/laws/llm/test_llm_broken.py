"""An engine that has failed reports it and accepts no more sentences; a single failed pass does not
stop it.
"""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator

import pytest
import torch
from torch import Tensor

from cosyserve.engines.compatibility import Identity
from cosyserve.errors import InternalFault, Unavailable
from services.llm.backends.torch_backend import TorchBackend
from services.llm.engine.engine import Engine
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits, Scheduler
from tests.unit.llm.tiny_llm import model, sentence, tokens


class FailingModel(SpeechTokenModel):
    """Fails as often as `failures` says, as a device does: with an error that is not ours."""

    failures: list[int]

    @classmethod
    def of(cls, plain: SpeechTokenModel) -> "FailingModel":
        failing = cls(**{name: getattr(plain, name) for name in SpeechTokenModel.__dataclass_fields__})
        object.__setattr__(failing, "failures", [0])
        return failing

    def _fail(self) -> None:
        if self.failures[0]:
            self.failures[0] -= 1
            raise RuntimeError("device-side assert triggered")

    def forward(self, embeddings: Tensor, cache: SequenceCache) -> Tensor:
        self._fail()
        return super().forward(embeddings, cache)

    def forward_rows(self, embeddings: Tensor, caches: list[SequenceCache]) -> Tensor:  # type: ignore[override]
        self._fail()
        return super().forward_rows(embeddings, caches)


@contextlib.asynccontextmanager
async def failing(*, batch_invariant: bool = True) -> AsyncIterator[tuple[TorchBackend, list[int], list[str]]]:
    """A backend, the number of passes that fail from now on, and the reasons given to on_fault."""
    decoder, faults = FailingModel.of(model()), list[str]()
    engine = Engine(
        decoder, Limits(running=4, waiting=4), batch_invariant=batch_invariant, threads=1, on_fault=faults.append
    )
    backend = TorchBackend(engine, Identity("tiny", "torch", "float32", "cpu"), 2048)
    try:
        yield backend, decoder.failures, faults
    finally:
        await backend.close()


async def fails(backend: TorchBackend, message: str) -> None:
    with pytest.raises(InternalFault, match=message):
        await tokens(backend, sentence(2))


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
            patch.setattr(
                torch, "empty", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("device-side assert triggered"))
            )
            for _ in range(3):
                await fails(backend, "failed: RuntimeError")
            await asyncio.to_thread(backend.engine._thread.join, 20)
        assert len(faults) == 1


async def test_a_dead_engine_thread_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    async with failing() as (backend, _, faults):

        def breaks(_: Scheduler) -> None:
            raise KeyError("policy")

        monkeypatch.setattr(Scheduler, "next", breaks)
        await fails(backend, "failed with KeyError")
        await asyncio.to_thread(backend.engine._thread.join, 20)
        assert faults == ["the speech-token engine failed with KeyError and has to be restarted"]


async def test_everyone_who_comes_too_late_gets_an_error_of_his_own() -> None:
    async with failing() as (backend, _, _faults):
        await backend.close()
        late = []
        for _ in range(3):
            with pytest.raises(Unavailable, match="shutting down") as refused:
                await tokens(backend, sentence(2))
            late.append(refused.value)
    assert len({id(error) for error in late}) == 3
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in late}) == 1
