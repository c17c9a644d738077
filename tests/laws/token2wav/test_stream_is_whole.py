"""Law: in the continuous profile the samples are a function of the request, not of hops, messages,
caches or concurrent streams; with engines of exported graphs too. The cached state of a voice's
prompt changes no sample, is computed once, and leaves nothing behind when its callers hang up.
"""

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Sequence
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import Backend
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.continuous_state import ContinuousState
from services.token2wav.decoders.interface import StepInput
from services.token2wav.flow.flow import as_prompt
from services.token2wav.flow.loading import load_flow
from services.token2wav.inputs.request import Growth, Hops, Profile, Sentence
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.first_chunk_delay import FirstChunkDelay
from services.token2wav.scheduling.measurements import StepCosts, TokenPace
from services.token2wav.scheduling.next_step import NextStep, ScheduledWork
from services.token2wav.scheduling.stream_slot import StreamSlot
from services.token2wav.stream import AcousticStream
from services.token2wav.vocoder.loading import load_vocoder
from tests.unit.token2wav.engines.engines import onnx_backend
from tests.unit.token2wav.speaking import TINY, batching, pieces, speak, tokens, torch_backend, voice

SCHEDULES = [Hops(), Hops(first_hop_tokens=30, growth=Growth.EXPONENTIAL), Hops(100, Growth.EXPONENTIAL, 400)]
MESSAGES = [1, 7, 1000]
LENGTH = 64


@pytest.fixture(scope="module")
def backend() -> Backend:
    return torch_backend(widest_step=8)


@pytest.fixture
async def batcher(backend: Backend) -> AsyncIterator[Batcher]:
    async with batching(backend.decoders) as running:
        yield running


@pytest.mark.parametrize("speed", [1.0, 1.25])
@pytest.mark.parametrize("prompt", [0, 20, 25, 30])
async def test_streamed_is_whole(batcher: Batcher, prompt: int, speed: float) -> None:
    whole = await speak(batcher, Sentence(voice(prompt), seed=7, hops=Hops(100), speed=speed), tokens(LENGTH))
    assert len(whole) == 2 * 480 * int(2 * LENGTH / speed)
    for hops, message in zip(SCHEDULES, cycle(MESSAGES), strict=False):
        cut = await pieces(batcher, Sentence(voice(prompt), seed=7, hops=hops, speed=speed), tokens(LENGTH), message)
        assert b"".join(piece.audio for piece in cut) == whole


@pytest.mark.parametrize("prompt", [0, 22, 25])
@pytest.mark.parametrize("length", [1, 2, 4, 28])
async def test_short_sentences_too(batcher: Batcher, prompt: int, length: int) -> None:
    whole = await speak(batcher, Sentence(voice(prompt), hops=Hops(100)), tokens(length))
    assert len(whole) == 2 * 960 * length
    assert await speak(batcher, Sentence(voice(prompt)), tokens(length), message=1) == whole


async def test_the_streamed_samples_are_those_of_a_recomputed_sentence(batcher: Batcher) -> None:
    """Fast path against slow path: no state, everything recomputed under the same masks."""
    directory, said = ModelDirectory(TINY), voice(20)
    flow, vocoder = load_flow(directory, torch.device("cpu")), load_vocoder(directory, torch.device("cpu"))
    mel = flow.prefix(as_prompt(said), torch.tensor(tokens(LENGTH)), streaming=True, final=True)
    recomputed = vocoder.offline(mel, 7, 0).numpy()
    streamed = np.frombuffer(await speak(batcher, Sentence(said, seed=7), tokens(LENGTH)), "<i2") / 32768
    assert np.abs(streamed - recomputed).max() < 2e-3
    assert recomputed.std() > 0.05


@pytest.mark.parametrize(
    "cuttings",
    [tuple(product(SCHEDULES, MESSAGES)), tuple(zip(SCHEDULES, MESSAGES, strict=True))],
    ids=["every", "three"],
)
async def test_any_schedule_with_any_cutting_of_messages(
    batcher: Batcher, cuttings: Sequence[tuple[Hops, int]]
) -> None:
    made = {
        await speak(batcher, Sentence(voice(20), seed=1, hops=hops), tokens(40), message) for hops, message in cuttings
    }
    assert len(made) == 1


async def test_hops_do_move_the_cuts(batcher: Batcher) -> None:
    cuts = [
        [piece.end_sample for piece in await pieces(batcher, Sentence(voice(20), hops=hops), tokens(90))]
        for hops in SCHEDULES
    ]
    assert len({tuple(cut) for cut in cuts}) == len(SCHEDULES)


async def test_eight_at_once_are_the_eight_one_by_one(batcher: Batcher) -> None:
    requests = [
        (
            Sentence(voice(prompt), seed=seed, sentence_index=seed % 3, speed=speed, hops=hops),
            tokens(30 + 5 * seed, offset=seed),
        )
        for seed, (prompt, speed, hops) in enumerate(
            zip([0, 20, 25, 30] * 2, [1.0, 1.25] * 4, [SCHEDULES[i % 3] for i in range(8)], strict=True)
        )
    ]
    one_by_one = [await speak(batcher, *request) for request in requests]
    assert await asyncio.gather(*(speak(batcher, *request, message=3) for request in requests)) == one_by_one
    assert len(set(one_by_one)) == 8


async def test_the_hundredth_request_is_the_first(batcher: Batcher) -> None:
    request = Sentence(voice(20), seed=3), tokens(30)
    first = await speak(batcher, *request)
    for seed in range(4, 8):
        await speak(batcher, Sentence(voice(0), seed=seed), tokens(5, offset=seed))
    assert await speak(batcher, *request) == first


async def test_seed_and_sentence_matter(batcher: Batcher) -> None:
    made = {
        await speak(batcher, Sentence(voice(0), seed=s, sentence_index=i), tokens(10))
        for s, i in [(0, 0), (1, 0), (0, 1)]
    }
    assert len(made) == 3


@pytest.mark.parametrize("prompt", [28, 60])
async def test_a_kept_prompt_changes_no_sample(backend: Backend, batcher: Batcher, prompt: int) -> None:
    made, steps = [], [backend.euler_steps()]
    for key in ("", f"v{prompt}", f"v{prompt}"):
        made.append(await speak(batcher, Sentence(voice(prompt, key=key), seed=2), tokens(30)))
        steps.append(backend.euler_steps())
    assert made[0] == made[1] == made[2]
    assert steps[3] - steps[2] == steps[1] - steps[0] - 10 * ((prompt - 3) // 25)
    assert batcher.stats().state_bytes == 0


async def test_the_same_key_with_another_voice_is_another_voice(batcher: Batcher) -> None:
    mine = await speak(batcher, Sentence(voice(30), seed=2), tokens(20))
    await speak(batcher, Sentence(voice(28, key="taken"), seed=2), tokens(20))
    assert await speak(batcher, Sentence(voice(30, key="taken"), seed=2), tokens(20)) == mine


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("start_sample", [1, 4801, 50 * 960 - 1])
async def test_resumed_is_the_tail(batcher: Batcher, profile: Profile, start_sample: int) -> None:
    whole = await speak(batcher, Sentence(voice(20), seed=5, profile=profile), tokens(50))
    tail = await speak(batcher, Sentence(voice(20), seed=5, profile=profile, start_sample=start_sample), tokens(50))
    assert tail == whole[2 * start_sample :]


class Capricious(FirstChunkDelay):
    """Delivers finished audio or holds it back at random."""

    def __init__(self, seed: int) -> None:
        super().__init__(60.0, StepCosts(), TokenPace(), batches=True)
        self._dice = random.Random(seed)

    def applies(self, slot: StreamSlot) -> bool:
        return True

    def over(self, slots: Sequence[StreamSlot], works: Sequence[ScheduledWork], now: float) -> list[StreamSlot]:
        return [slot for slot in slots if slot.held is not None and self._dice.random() < 0.3]

    def soonest(self, slots: Sequence[StreamSlot], now: float) -> float | None:
        return 0.001 if any(slot.held is not None for slot in slots) else None


class CapriciousStep(NextStep):
    """Takes any of the due streams, at least one."""

    def __init__(self, seed: int, batcher: Batcher) -> None:
        super().__init__(batcher._costs, batcher._budget, batches=True)
        self._dice = random.Random(seed)

    def of(self, slots: Sequence[StreamSlot], now: float) -> list[ScheduledWork]:
        works = super().of(slots, now)
        return self._dice.sample(works, self._dice.randint(1, len(works))) if works else []


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_held_and_however_streams_meet(backend: Backend, batcher: Batcher, seed: int) -> None:
    """Also for a caller that resumes a sentence in its middle."""
    requests = [
        (Sentence(voice(prompt), seed=seed, start_sample=start), tokens(90, offset=at))
        for at, (prompt, start) in enumerate([(20, 0), (15, 0), (12, 20_000), (20, 1), (25, 50_000)])
    ]
    plain = [await speak(batcher, *request) for request in requests]
    async with batching(backend.decoders) as capricious:
        capricious._delivery.first_chunk_delay, capricious._next_step = (
            Capricious(seed),
            CapriciousStep(seed, capricious),
        )
        made = await asyncio.gather(*(pieces(capricious, *request, 11) for request in requests))
    assert [b"".join(piece.audio for piece in cut) for cut in made] == plain
    assert min(len(cut) for cut in made) < 4, "hops were joined"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Backend:
    return onnx_backend(Path(tmp_path_factory.mktemp("engines")))


@pytest.fixture
async def on_graphs(exported: Backend) -> AsyncIterator[Batcher]:
    async with batching(exported.decoders) as running:
        yield running


@pytest.mark.parametrize(("prompt", "speed", "length"), [(0, 1.0, 4), (20, 1.25, 64), (25, 1.0, 28), (30, 1.0, 41)])
async def test_streamed_is_whole_on_graphs(on_graphs: Batcher, prompt: int, speed: float, length: int) -> None:
    whole = await speak(on_graphs, Sentence(voice(prompt), seed=7, hops=Hops(100), speed=speed), tokens(length))
    assert len(whole) == 2 * 480 * int(2 * length / speed)
    for hops, message in ((Hops(), 1), (Hops(30, Growth.EXPONENTIAL), 7)):
        sentence = Sentence(voice(prompt), seed=7, hops=hops, speed=speed)
        assert await speak(on_graphs, sentence, tokens(length), message) == whole


@pytest.mark.parametrize("start_sample", [1, 25 * 960 + 17])
async def test_resumed_is_the_tail_on_graphs(on_graphs: Batcher, start_sample: int) -> None:
    whole = await speak(on_graphs, Sentence(voice(20), seed=5), tokens(50))
    assert (
        await speak(on_graphs, Sentence(voice(20), seed=5, start_sample=start_sample), tokens(50))
        == whole[2 * start_sample :]
    )


async def test_the_next_request_is_the_first_on_graphs(on_graphs: Batcher) -> None:
    first = await speak(on_graphs, Sentence(voice(20, key="v"), seed=3), tokens(30))
    await speak(on_graphs, Sentence(voice(0), seed=4), tokens(60, offset=2))
    assert await speak(on_graphs, Sentence(voice(20, key="v"), seed=3), tokens(30)) == first
    assert await speak(on_graphs, Sentence(voice(20), seed=9), tokens(30)) != first


SHORT = 40
INSIDE = 75
"""Tokens of a prompt of 87 up to the last grid border whose look-ahead lies in the prompt."""


def said(key: str = "v", prompt: int = 87, seed: int = 7) -> Sentence:
    return Sentence(voice(prompt, key=key), seed=seed)


def continuous(**settings: int) -> ContinuousDecoder:
    return torch_backend(**settings).decoders[Profile.CONTINUOUS]


def step_input(state: ContinuousState) -> StepInput[ContinuousState]:
    return StepInput(state, np.zeros(0, np.int64), state.reach(INSIDE), final=False)


@pytest.mark.parametrize("prompt", [28, 50, 87])
async def test_empty_warm_and_evicted_caches_give_the_same_samples(prompt: int) -> None:
    async with batching(torch_backend(prompt_cache_bytes=0).decoders) as batcher:
        slow = await speak(batcher, said("", prompt), tokens(SHORT))
        assert await speak(batcher, said("v", prompt), tokens(SHORT)) == slow
    decoder = continuous(prompt_cache_bytes=1 << 30)
    one = decoder.start(said("v", prompt))
    decoder.step([step_input(one)])
    small = continuous(prompt_cache_bytes=int(one.flow.bytes * ((prompt - 3) // 25) * 1.2))
    async with batching({Profile.CONTINUOUS: small}) as batcher:
        for key, counts in (("v", (0, 1, 0)), ("v", (1, 1, 0)), ("w", (1, 2, 1)), ("v", (1, 3, 2))):
            made = await speak(batcher, said(key, prompt), tokens(SHORT))
            assert (small.prompts.hits, small.prompts.misses, small.prompts.evictions) == counts
            assert key == "w" or made == slow


async def test_a_warm_cache_leaves_one_block_before_the_first_sound() -> None:
    backend = torch_backend()
    async with batching(backend.decoders) as batcher:
        begun = backend.euler_steps()
        await speak(batcher, said(), tokens(13))
        cold = backend.euler_steps() - begun
        await speak(batcher, said(), tokens(13))
    assert (cold, backend.euler_steps() - begun - cold) == (40, 10)


@pytest.mark.parametrize("widest", [1, 8])
async def test_streams_that_come_together_compute_the_prompt_once(widest: int) -> None:
    backend = torch_backend(widest_step=widest)
    async with batching(backend.decoders) as batcher:
        alone = await speak(batcher, said(""), tokens(SHORT))
        begun = backend.euler_steps()
        heard = await asyncio.gather(*(speak(batcher, said(), tokens(SHORT)) for _ in range(4)))
        steps = backend.euler_steps() - begun
    assert set(heard) == {alone}
    blocks_behind = -(-(87 + SHORT - INSIDE) // 25)
    assert steps == 10 * (INSIDE // 25 + 4 * blocks_behind)


@pytest.mark.parametrize("together", [False, True])
def test_one_that_hangs_up_in_the_middle_leaves_its_work_to_the_others(together: bool) -> None:
    decoder = continuous()
    first, second = decoder.start(said()), decoder.start(said(seed=8))
    decoder.step([step_input(first), step_input(second)] if together else [step_input(first)])
    first.cancel()
    assert decoder.step([step_input(first)]) == [None]
    del first
    while second.position < INSIDE:
        decoder.step([step_input(second)])
    assert decoder.prompts.states == 1
    alone = continuous()
    recomputed = alone.start(said())
    while recomputed.position < INSIDE:
        alone.step([step_input(recomputed)])
    for ours, theirs in zip(second.flow.steps, recomputed.flow.steps, strict=True):
        assert all(mine.equal(other) for mine, other in zip(ours.convolutions, theirs.convolutions, strict=True))


async def test_nothing_is_left_when_all_hang_up_in_the_middle() -> None:
    decoder = continuous()
    state = decoder.start(said())
    decoder.step([step_input(state)])
    key = state.key
    assert decoder._prompts.further(key, 0) is state.shared
    del state
    gc.collect()
    assert (decoder._prompts.further(key, 0), decoder.prompts.bytes) == (None, 0)
    async with batching({Profile.CONTINUOUS: decoder}) as batcher:
        async with AcousticStream(batcher, said()):
            pass
        assert batcher.stats().streams == 0
        assert len(await speak(batcher, said(), tokens(3))) == 2 * 960 * 3


def test_a_leader_that_hangs_up_in_a_shared_step_is_succeeded() -> None:
    decoder = continuous(widest_step=2)
    leader, follower = decoder.start(said()), decoder.start(said(seed=8))
    leader.cancel()
    assert decoder.step([step_input(leader), step_input(follower)])[0] is None
    decoder.step([step_input(follower)])
    assert follower.position == 25
