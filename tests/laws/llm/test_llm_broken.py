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

from cosyserve.errors import InternalFault, Unavailable
from services.llm.backends.torch_backend import TorchBackend
from services.llm.engine.scheduler import Limits, Scheduler
from tests.laws.llm.test_llm_cancel import watched
from tests.unit.llm.tiny_llm import sentence, tokens


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


async def test_an_engine_thread_that_dies_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with failing() as (backend, _, faults):

        def breaks(_: Scheduler) -> None:
            raise KeyError("policy")

        monkeypatch.setattr(Scheduler, "next", breaks)
        await fails(backend, "failed with KeyError")
        await asyncio.to_thread(backend.engine._thread.join, 20)
        assert faults == ["the speech-token engine failed with KeyError and has to be restarted"]


async def test_each_request_to_a_closed_engine_gets_its_own_error() -> None:
    async with failing() as (backend, _, _faults):
        await backend.close()
        late = []
        for _ in range(3):
            with pytest.raises(Unavailable, match="shutting down") as refused:
                await tokens(backend, sentence(2))
            late.append(refused.value)
    assert len({id(error) for error in late}) == 3
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in late}) == 1
