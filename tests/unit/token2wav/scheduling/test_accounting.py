"""The recorded cost of a step is its sequential time, even if a part of it was computed early."""

import numpy as np
import pytest
from services.token2wav.scheduling.measurements import StepCosts

from cosyserve.engines.engine_load import EngineLoad
from services.token2wav.decoders.fake import FakeDecoder
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.inputs.chunking import schedule
from services.token2wav.inputs.request import Sentence
from services.token2wav.scheduling.next_step import PendingBlocks, ScheduledWork
from services.token2wav.scheduling.step_runner import record_step
from services.token2wav.scheduling.stream_slot import StreamSlot
from tests.unit.token2wav.speaking import voice


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


def test_steps_inside_the_prompt_are_part_of_what_the_speech_behind_it_costs() -> None:
    costs, load, one, other = StepCosts(), EngineLoad(), work(), work()
    record_step([one, other], [decoded(0.0), decoded(0.0)], 0.4, costs, load)
    record_step([one], [decoded(0.0)], 0.1, costs, load)
    assert load.now is None
    record_step([one], [decoded(1.0)], 0.2, costs, load)
    assert load.now is not None
    assert load.now.real_time_factor == pytest.approx(0.5)
    record_step([one, other], [decoded(1.0), decoded(1.0)], 0.2, costs, load)
    assert load.now is not None
    assert load.now.real_time_factor == pytest.approx(0.9 / 3)


@pytest.mark.parametrize("made", [None, decoded(0.0)])
def test_steps_of_streams_that_are_cancelled_before_any_sound_are_not(made: Decoded | None) -> None:
    costs, load, speaking = StepCosts(), EngineLoad(), work()
    record_step([speaking], [decoded(5.0)], 0.5, costs, load)
    for _ in range(100):
        record_step([work()], [made], 0.3, costs, load)
    record_step([speaking], [decoded(5.0)], 0.5, costs, load)
    assert load.now is not None
    assert load.now.real_time_factor == pytest.approx(0.1)
