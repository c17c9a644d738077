"""Law: the samples of a CosyVoice3 model, and of Step-Audio2's decoder behind the tokens of a
CosyVoice2 model, are a function of the request: streamed = whole, resumed = the tail, four at once
= one by one.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.inputs.request import Growth, Hops, Profile, Sentence
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from tests.stacks.up_process import STEP_AUDIO2, TINY, TINY3
from tests.unit.token2wav.speaking import batching, speak, tokens, voice

MODELS: dict[str, dict[str, Any]] = {
    "cosyvoice3": {"model": TINY3},
    "step-audio2": {"model": TINY, "decoder_model": STEP_AUDIO2},
}
LENGTH = 90
"""Of Step-Audio2 three blocks and a part: the first behind the prompt is dropped for the last."""


@pytest.fixture(scope="module", params=MODELS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return load_backend("torch", EngineSettings(**MODELS[request.param], threads=1, widest_step=8))


@pytest.fixture
async def batcher(backend: Backend) -> AsyncIterator[Batcher]:
    async with batching(backend.decoders) as running:
        yield running


@pytest.mark.parametrize(("prompt", "speed"), [(0, 1.0), (2, 1.0), (20, 1.0), (25, 1.25), (37, 1.25)])
async def test_streamed_is_whole(batcher: Batcher, prompt: int, speed: float) -> None:
    whole = await speak(batcher, Sentence(voice(prompt), seed=7, hops=Hops(100), speed=speed), tokens(LENGTH))
    assert len(whole) == 2 * 480 * int(2 * LENGTH / speed)
    for hops, message in ((Hops(), 1), (Hops(30, Growth.EXPONENTIAL), 7)):
        sentence = Sentence(voice(prompt), seed=7, hops=hops, speed=speed)
        assert await speak(batcher, sentence, tokens(LENGTH), message) == whole


@pytest.mark.parametrize("profile", list(Profile))
async def test_resumed_is_the_tail(batcher: Batcher, profile: Profile) -> None:
    whole = await speak(batcher, Sentence(voice(20), seed=5, profile=profile), tokens(60))
    for start in (1, 4801, 60 * 960 - 1):
        sentence = Sentence(voice(20), seed=5, profile=profile, start_sample=start)
        assert await speak(batcher, sentence, tokens(60), message=9) == whole[2 * start :]


async def test_four_at_once_are_the_four_one_by_one(batcher: Batcher) -> None:
    requests = [
        (Sentence(voice(prompt), seed=seed, sentence_index=seed), tokens(80 + 5 * seed, offset=seed))
        for seed, prompt in enumerate([0, 20, 25, 30])
    ]
    one_by_one = [await speak(batcher, *request) for request in requests]
    assert await asyncio.gather(*(speak(batcher, *request, message=3) for request in requests)) == one_by_one
    assert len(set(one_by_one)) == 4
