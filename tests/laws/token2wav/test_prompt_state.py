"""Law: the cached state of a voice's prompt changes no sample, is computed once, and leaves nothing
behind when its callers hang up.
"""

import asyncio
import gc

import numpy as np
import pytest

from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.continuous_state import ContinuousState
from services.token2wav.decoders.interface import StepInput
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.stream import AcousticStream
from tests.unit.token2wav.speaking import batching, speak, tokens, torch_backend, voice

LENGTH = 40
INSIDE = 75
"""Tokens of a prompt of 87 up to the last grid border whose look-ahead lies in the prompt."""


def said(key: str = "v", prompt: int = 87, seed: int = 7) -> Sentence:
    return Sentence(voice(prompt, key=key), seed=seed)


def continuous(**settings: int) -> ContinuousDecoder:
    decoder = torch_backend(**settings).decoders[Profile.CONTINUOUS]
    assert isinstance(decoder, ContinuousDecoder)
    return decoder


def step_input(state: ContinuousState) -> StepInput[ContinuousState]:
    return StepInput(state, np.zeros(0, np.int64), state.reach(INSIDE), final=False)


@pytest.mark.parametrize("prompt", [28, 50, 87])
async def test_empty_warm_and_evicted_caches_give_the_same_samples(prompt: int) -> None:
    uncached = torch_backend(prompt_cache_bytes=0)
    async with batching(uncached.decoders) as batcher:
        slow = await speak(batcher, said("", prompt), tokens(LENGTH))
        assert await speak(batcher, said("v", prompt), tokens(LENGTH)) == slow
    decoder = continuous(prompt_cache_bytes=1 << 30)
    one = decoder.start(said("v", prompt))
    decoder.step([StepInput(one, np.zeros(0, np.int64), 25, final=False)])
    small = continuous(prompt_cache_bytes=int(one.flow.bytes * ((prompt - 3) // 25) * 1.2))
    async with batching({Profile.CONTINUOUS: small}) as batcher:
        assert await speak(batcher, said("v", prompt), tokens(LENGTH)) == slow
        assert await speak(batcher, said("v", prompt), tokens(LENGTH)) == slow
        assert (small.prompts.hits, small.prompts.misses, small.prompts.evictions) == (1, 1, 0)
        await speak(batcher, said("w", prompt), tokens(LENGTH))
        assert small.prompts.evictions == 1
        assert await speak(batcher, said("v", prompt), tokens(LENGTH)) == slow
        assert (small.prompts.hits, small.prompts.misses, small.prompts.evictions) == (1, 3, 2)


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
        alone = await speak(batcher, said(""), tokens(LENGTH))
        begun = backend.euler_steps()
        heard = await asyncio.gather(*(speak(batcher, said(), tokens(LENGTH)) for _ in range(4)))
        steps = backend.euler_steps() - begun
    assert set(heard) == {alone}
    blocks_behind = -(-(87 + LENGTH - INSIDE) // 25)
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
    assert decoder._prompts.further(key, 0) is None
    assert decoder.prompts.bytes == 0
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
