"""The fake decoder obeys the laws of the real one."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.decoders.interface import StepInput
from services.token2wav.inputs.request import Growth, Hops, Profile, Sentence
from services.token2wav.loading import load_backend
from tests.stacks.up_process import TINY, TINY3
from tests.unit.token2wav.speaking import batching, speak, tokens, voice


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("prompt", [0, 20, 25])
async def test_streamed_is_whole(profile: Profile, prompt: int) -> None:
    speeds = [1.0] if profile is Profile.UPSTREAM else [0.5, 1.0, 1.3]
    schedules = [Hops(), Hops(40), Hops(100, Growth.EXPONENTIAL, 400)]
    async with batching(load_backend("fake", EngineSettings()).decoders) as batcher:
        for speed in speeds:
            made = {
                await speak(
                    batcher,
                    Sentence(voice(prompt), seed=4, profile=profile, hops=hops, speed=speed),
                    tokens(77),
                    message,
                )
                for hops, message in product(schedules, [3, 1000])
            }
            assert len(made) == 1
            assert len(made.pop()) == 2 * 480 * int(2 * 77 / speed)


async def test_tokens_seed_and_sentence_are_heard() -> None:
    async with batching(load_backend("fake", EngineSettings()).decoders) as batcher:
        requests = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
        made = {
            await speak(batcher, Sentence(voice(0), seed=seed, sentence_index=index), tokens(5, offset))
            for seed, index, offset in requests
        }
        assert len(made) == 4
        assert all(np.abs(np.frombuffer(audio, "<i2")).max() > 2000 for audio in made)


@pytest.mark.parametrize(("model", "silent"), [(None, 8), (Path("nowhere"), 8), (TINY, 8), (TINY3, 2)])
def test_it_holds_back_what_the_model_does_and_eight_tokens_at_most(model: Path | None, silent: int) -> None:
    decoder = load_backend("fake", EngineSettings(model=model)).decoders[Profile.CONTINUOUS]
    for count in (silent, silent + 1):
        state = decoder.start(Sentence(voice(0)))
        step = StepInput(state=state, tokens=np.array(tokens(count), np.int64), until=count, final=False)
        (decoded,) = decoder.step([step])
        assert decoded is not None
        assert len(decoded.samples) == 960 * (count - silent)
