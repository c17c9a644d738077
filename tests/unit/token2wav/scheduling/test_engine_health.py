"""When an engine counts as broken, and that this is reported once."""

import asyncio
import logging
from collections.abc import Sequence

import pytest
import torch

from cosyserve.errors import CosyserveError, InternalFault, InvalidRequest, Overloaded, Unavailable
from services.token2wav.decoders.fake import FakeDecoder, FakeState
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.stream import AcousticStream
from tests.unit.token2wav.speaking import batching, speak, tokens, voice


class Failing(FakeDecoder):
    """Raises what is next in `faults`; None: works."""

    def __init__(self, *faults: BaseException | None) -> None:
        super().__init__()
        self._faults = iter(faults)

    def step(self, step_inputs: Sequence[StepInput[FakeState]]) -> list[Decoded | CosyserveError | None]:
        fault = next(self._faults, None)
        if fault is not None:
            raise fault
        return super().step(step_inputs)


LOST = RuntimeError("the device is lost")


async def reasons(*faults: BaseException | None) -> list[str]:
    """What the service is notified of, given this many sentences of one step each."""
    reported: list[str] = []
    async with batching({Profile.CONTINUOUS: Failing(*faults)}, on_fault=reported.append) as batcher:
        for fault in faults:
            if fault is None:
                await speak(batcher, Sentence(voice(0)), tokens(5))
            else:
                with pytest.raises(CosyserveError):
                    await speak(batcher, Sentence(voice(0)), tokens(5))
    return reported


async def test_three_faults_in_a_row_are_a_broken_engine_and_told_once() -> None:
    assert await reasons(LOST, LOST) == []
    assert await reasons(LOST, LOST, LOST, LOST) == [
        "3 steps in a row failed, the last one with RuntimeError: the device is lost"
    ]


async def test_a_step_that_works_begins_the_count_anew() -> None:
    assert await reasons(LOST, LOST, None, LOST, LOST) == []


async def test_a_refusal_is_no_fault_of_the_engine() -> None:
    assert await reasons(*(InvalidRequest("odd voice") for _ in range(5))) == []


async def test_memory_that_ran_out_refuses_the_sentence_and_is_no_fault_of_the_engine() -> None:
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    reported: list[str] = []
    async with batching({Profile.CONTINUOUS: Failing(*[full] * 4)}, on_fault=reported.append) as batcher:
        for _ in range(4):
            with pytest.raises(Overloaded, match="no memory left for this sentence") as refused:
                await speak(batcher, Sentence(voice(0)), tokens(5))
            assert refused.value.retry_after == 1.0
        assert await speak(batcher, Sentence(voice(0)), tokens(5))
    assert reported == []


async def test_starts_that_fail_count_too() -> None:
    class Unstartable(FakeDecoder):
        def start(self, sentence: Sentence) -> FakeState:
            raise LOST

    reported: list[str] = []
    async with batching({Profile.CONTINUOUS: Unstartable()}, on_fault=reported.append) as batcher:
        for _ in range(3):
            with pytest.raises(InternalFault):
                await speak(batcher, Sentence(voice(0)), tokens(5))
    assert len(reported) == 1


async def test_a_thread_that_dies_is_told_and_ends_its_streams(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[str] = []
    with caplog.at_level(logging.ERROR):
        async with batching({Profile.CONTINUOUS: Failing(SystemExit(9))}, on_fault=reported.append) as batcher:
            with pytest.raises(InternalFault, match="the decoder's thread has ended"):
                await asyncio.wait_for(speak(batcher, Sentence(voice(0)), tokens(5)), 5)
            with pytest.raises(Unavailable):
                AcousticStream(batcher, Sentence(voice(0)))
    assert reported == ["the decoder's thread ended with SystemExit: 9"]
    assert "the decoder's thread failed" in caplog.text
