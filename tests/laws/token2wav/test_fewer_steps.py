"""Laws of sentences with fewer Euler steps than ten: they reach the end of the flow, streamed =
whole holds for them, each stream of a batch takes its own number, and no state of a prompt is used
in another number of steps than it was made in.
"""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from cosyserve.errors import InvalidRequest
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import EULER_STEPS, FEWEST_EULER_STEPS
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.solver import euler_schedule
from services.token2wav.inputs.request import Hops, Profile, Sentence
from services.token2wav.scheduling.batcher import Batcher
from tests.stacks.up_process import TINY, TINY3
from tests.unit.token2wav.gpu.small_flow import random_voice
from tests.unit.token2wav.speaking import batching, speak, tokens, torch_backend, voice


@pytest.fixture(scope="module", params=[TINY, TINY3], ids=["unet", "dit"])
def flow(request: pytest.FixtureRequest) -> Flow:
    return load_flow(ModelDirectory(request.param), torch.device("cpu"))


@pytest.mark.parametrize("steps", range(FEWEST_EULER_STEPS, EULER_STEPS + 1))
def test_any_number_of_steps_leads_to_the_end_of_the_flow(steps: int) -> None:
    schedule = euler_schedule(steps)
    assert len(schedule) == steps
    assert sum(dt for _, dt in schedule) == pytest.approx(1.0, abs=1e-6)
    assert all(later[0] > earlier[0] for earlier, later in itertools.pairwise(schedule))


def blocks(flow: Flow, numbers: list[int]) -> list[torch.Tensor]:
    """Two blocks of a stream for each number of steps, all of them together."""
    voices = [random_voice(20, 7 + at) for at in range(len(numbers))]
    states = [flow.start(voice, steps) for voice, steps in zip(voices, numbers, strict=True)]
    ids = [torch.cat([voice.tokens, torch.arange(40)]) for voice in voices]
    made: list[Any] = [
        flow.blocks(states, [some[begin : begin + 25] for some in ids], [some[begin + 25 : begin + 28] for some in ids])
        for begin in (0, 25)
    ]
    assert [len(state.steps) for state in states] == numbers
    return [torch.cat(both, dim=1) for both in zip(*made, strict=True)]


@pytest.mark.parametrize("invariant", [True, False])
def test_each_stream_of_a_batch_takes_its_own_number(flow: Flow, invariant: bool) -> None:
    numbers = [10, 6, 8, 6, 10]
    flow.batch_invariant = invariant
    together = blocks(flow, numbers)
    flow.batch_invariant = True
    begun = flow.euler_steps
    for at, mel in enumerate(together):
        alone = blocks(flow, [10] * at + [numbers[at]])[at]
        torch.testing.assert_close(mel, alone, atol=0 if invariant else 2e-5, rtol=0)
    assert flow.euler_steps > begun
    assert (blocks(flow, [6])[0] - blocks(flow, [10])[0]).abs().max() > 1e-3


def test_fewer_steps_are_less_work(flow: Flow) -> None:
    counts = []
    for steps in (10, 5):
        begun = flow.euler_steps
        blocks(flow, [steps])
        counts.append(flow.euler_steps - begun)
    assert counts == [20, 10]


async def audio(batcher: Batcher, sentence: Sentence) -> "np.ndarray[Any, Any]":
    return np.frombuffer(await speak(batcher, sentence, tokens(80)), "<i2")


async def test_streamed_is_whole_and_no_prompt_state_is_mixed() -> None:
    plain = Sentence(voice(40, "anna"), seed=3)
    async with batching(torch_backend().decoders) as batcher:
        unmixed = await audio(batcher, plain.in_steps(6))
    async with batching(torch_backend().decoders) as batcher:
        ten = await audio(batcher, plain)
        six = await audio(batcher, plain.in_steps(6))
        longer = Sentence(plain.voice, seed=3, hops=Hops(first_hop_tokens=60)).in_steps(6)
        assert np.array_equal(six, unmixed)
        assert np.array_equal(six, await audio(batcher, longer))
        assert np.array_equal(ten, await audio(batcher, plain))
    assert ten.shape == six.shape
    assert not np.array_equal(ten, six)


@pytest.mark.parametrize("steps", [-1, 4, 11])
def test_other_numbers_are_refused(steps: int) -> None:
    with pytest.raises(InvalidRequest, match=f"euler_steps is {steps}; 5 to 10 is allowed"):
        Sentence(voice(0), profile=Profile.CONTINUOUS).in_steps(steps)
