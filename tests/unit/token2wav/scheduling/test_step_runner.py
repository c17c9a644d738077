"""Which streams the next step takes: by deadline, by the cost of a step of that size, and without
making promised audio late. When an engine counts as broken, which is reported once; and the
recorded cost of a step, which is its sequential time even if a part of it was computed early.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from cosyserve.engines.device_loss import LossReason
from cosyserve.engines.engine_load import EngineLoad
from cosyserve.errors import CosyserveError, DeviceLost, InternalFault, InvalidRequest, Overloaded, Unavailable
from services.token2wav.decoders.fake import FakeDecoder, FakeState
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.inputs.chunking import schedule
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.scheduling.measurements import StepCosts, bucket
from services.token2wav.scheduling.next_step import PendingBlocks, ScheduledWork, admitted
from services.token2wav.scheduling.step_runner import record_step
from services.token2wav.scheduling.stream_slot import StreamSlot
from services.token2wav.stream import AcousticStream
from tests.unit.token2wav.speaking import batching, speak, tokens, voice

SEEN = {1: 0.015, 2: 0.018, 4: 0.025, 8: 0.032, 16: 0.046, 32: 0.076}
NOW = 100.0


def costs(seconds: Mapping[int, float]) -> StepCosts:
    """seconds: of one step, by its blocks."""
    seen = StepCosts()
    for blocks, each in seconds.items():
        seen.add(blocks, each)
    return seen


def first(waits: float = 0.0) -> PendingBlocks:
    return PendingBlocks(1, NOW + 0.2 - waits, playing=False)


def playing(left: float, blocks: int = 1) -> PendingBlocks:
    return PendingBlocks(blocks, NOW + left, playing=True)


CROWD = [playing(2.0) for _ in range(20)]


@pytest.mark.parametrize(
    ("dues", "widest", "times", "count"),
    [
        pytest.param([first(), *[playing(2.0 + at) for at in range(20)]], 32, 1, 1, id="players with plenty wait"),
        *(
            pytest.param([*[first() for _ in range(firsts)], *CROWD], 32, 1, together, id=f"filled up to {together}")
            for firsts, together in ((1, 1), (3, 4), (5, 8), (9, 16))
        ),
        pytest.param([first(), playing(0.08), playing(2.0)], 32, 1, 2, id="a player about to run dry goes too"),
        # With 220 ms left one player can wait for another step, the last of forty cannot.
        pytest.param([first(), playing(0.22)], 32, 1, 1, id="one player can wait"),
        pytest.param([first(), *[playing(0.22) for _ in range(40)]], 32, 1, 32, id="many players cannot"),
        pytest.param(CROWD, 32, 1, 20, id="without hurry all that fit go together"),
        pytest.param(CROWD, 8, 1, 8, id="at most the widest step"),
        pytest.param([playing(0.01, 4), playing(2.0, 4), playing(2.0)], 32, 1, 1, id="several blocks of one stream"),
        pytest.param([playing(0.01, 16), playing(2.0)], 1, 1, 1, id="more blocks than the widest step"),
        # Twice as slow, a step of 16 takes 92 ms, and 8 are the most that stay below 80; forty
        # players that short steps would let run dry take the widest.
        pytest.param([first() for _ in range(40)], 32, 2, 8, id="steps stay short"),
        pytest.param([first() for _ in range(80)], 32, 2, 32, id="a crowd is served sooner by wide steps"),
        pytest.param([playing(0.2) for _ in range(40)], 32, 2, 32, id="promised audio would be late"),
        pytest.param([playing(0.001) for _ in range(40)], 32, 2, 8, id="promised audio is late anyway"),
        pytest.param([PendingBlocks(16, NOW, playing=False), first()], 8, 1, 1, id="the oldest is never too much"),
    ],
)
def test_what_the_next_step_takes(dues: list[PendingBlocks], widest: int, times: int, count: int) -> None:
    seen = costs({blocks: times * seconds for blocks, seconds in SEEN.items()})
    assert admitted(sorted(dues, key=lambda due: due.by), NOW, seen, widest) == count


def test_steps_stay_wide_where_narrow_ones_take_as_long() -> None:
    """As with an engine whose launches take the time, on a GPU or on one that is slower than those
    that were measured.
    """
    assert admitted([first() for _ in range(16)], NOW, costs(dict.fromkeys(SEEN, 0.39)), 16) == 16


def test_a_width_without_measurements_is_tried() -> None:
    assert admitted([first() for _ in range(8)], NOW, costs({1: 0.39}), 16) == 8


def test_a_step_of_unknown_size_is_guessed_from_its_neighbours() -> None:
    seen = StepCosts()
    for seconds in (0.9, 0.010, 0.011, 0.012):
        seen.add(2, seconds)
    assert seen.typical(2) == seen.typical(1) == 0.012
    assert (seen.typical(16), seen.slow(2)) == (pytest.approx(0.012 * 1.4**3), 0.9)
    assert [bucket(blocks) for blocks in (1, 2, 3, 9, 32)] == [1, 2, 4, 16, 32]


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
STICKY = RuntimeError("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize(
    ("faults", "notices"),
    [
        pytest.param([LOST] * 2, [], id="two faults are none"),
        pytest.param(
            [LOST] * 4,
            ["3 steps in a row failed, the last one with RuntimeError: the device is lost"],
            id="three in a row are a broken engine, reported once",
        ),
        pytest.param([LOST, LOST, None, LOST, LOST], [], id="a step that works resets the count"),
        pytest.param([InvalidRequest("odd voice")] * 5, [], id="a refusal is no fault of the engine"),
    ],
)
async def test_what_the_service_is_notified_of(faults: list[Exception | None], notices: list[str]) -> None:
    """Sentences of one step each."""
    reported: list[str] = []
    async with batching({Profile.CONTINUOUS: Failing(*faults)}, on_fault=reported.append) as batcher:
        for fault in faults:
            with pytest.raises(CosyserveError) if fault else contextlib.nullcontext():
                await speak(batcher, Sentence(voice(0)), tokens(5))
    assert reported == notices


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


async def test_a_lost_gpu_is_reported_at_once_and_its_streams_may_go_on_elsewhere() -> None:
    reported: list[str] = []
    async with batching({Profile.CONTINUOUS: Failing(STICKY)}, on_fault=reported.append) as batcher:
        with pytest.raises(DeviceLost, match="the GPU is lost"):
            await speak(batcher, Sentence(voice(0)), tokens(5))
    assert [isinstance(reason, LossReason) for reason in reported] == [True]


async def test_starts_that_fail_count_too() -> None:
    decoder, reported = FakeDecoder(), list[str]()
    decoder.start = Mock(side_effect=LOST)  # type: ignore[method-assign]
    async with batching({Profile.CONTINUOUS: decoder}, on_fault=reported.append) as batcher:
        for _ in range(3):
            with pytest.raises(InternalFault):
                await speak(batcher, Sentence(voice(0)), tokens(5))
    assert len(reported) == 1


async def test_a_thread_that_dies_is_reported_and_ends_its_streams(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[str] = []
    with caplog.at_level(logging.ERROR):
        async with batching({Profile.CONTINUOUS: Failing(SystemExit(9))}, on_fault=reported.append) as batcher:
            with pytest.raises(InternalFault, match="the decoder's thread has ended"):
                await asyncio.wait_for(speak(batcher, Sentence(voice(0)), tokens(5)), 5)
            with pytest.raises(Unavailable):
                AcousticStream(batcher, Sentence(voice(0)))
    assert reported == ["the decoder's thread ended with SystemExit: 9"]
    assert "the decoder's thread failed" in caplog.text


def work() -> ScheduledWork:
    sentence, decoder = Sentence(voice(0)), FakeDecoder()
    cuts = schedule(sentence.profile, 0, sentence.hops)
    slot = StreamSlot(sentence, decoder, cuts, lambda _: None, reserved=0, bytes=0)
    return ScheduledWork(
        slot, StepInput(decoder.start(sentence), np.zeros(28, np.int64), 25, final=False), PendingBlocks(1, 0.0, False)
    )


@pytest.mark.parametrize(
    ("flow", "vocoder", "expected"),
    [((0, 60_000_000), (60_000_000, 100_000_000), 0.1), ((-70_000_000, 5_000_000), (60_000_000, 100_000_000), 0.115)],
)
def test_a_block_that_was_begun_early_costs_its_whole_time(
    flow: tuple[int, int], vocoder: tuple[int, int], expected: float
) -> None:
    costs, load = StepCosts(), EngineLoad()
    record_step([work()], [Decoded(np.zeros(24_000, np.float32), 25, 50, flow, vocoder)], 0.1, costs, load)
    assert costs.slow(1) == pytest.approx(expected)


def decoded(seconds_of_sound: float) -> Decoded:
    return Decoded(
        np.zeros(round(24_000 * seconds_of_sound), np.float32), 25, 50, (0, 0), (0, 0) if seconds_of_sound else None
    )


def test_steps_inside_the_prompt_are_part_of_the_cost_of_the_speech_after_it() -> None:
    costs, load, one, other = StepCosts(), EngineLoad(), work(), work()
    record_step([one, other], [decoded(0.0), decoded(0.0)], 0.4, costs, load)
    record_step([one], [decoded(0.0)], 0.1, costs, load)
    assert load.now is None
    record_step([one], [decoded(1.0)], 0.2, costs, load)
    assert load.now.real_time_factor == pytest.approx(0.5)
    record_step([one, other], [decoded(1.0), decoded(1.0)], 0.2, costs, load)
    assert load.now.real_time_factor == pytest.approx(0.9 / 3)


@pytest.mark.parametrize("made", [None, decoded(0.0)])
def test_steps_of_streams_that_are_cancelled_before_any_sound_are_not(made: Decoded | None) -> None:
    costs, load, speaking = StepCosts(), EngineLoad(), work()
    record_step([speaking], [decoded(5.0)], 0.5, costs, load)
    for _ in range(100):
        record_step([work()], [made], 0.3, costs, load)
    record_step([speaking], [decoded(5.0)], 0.5, costs, load)
    assert load.now.real_time_factor == pytest.approx(0.1)
