"""Law: the samples of a CosyVoice3 model, too, are a function of the request: streamed = whole =
recomputed without state, resumed = the tail, four at once = one by one; with engines of exported
graphs too. Its flow and its vocoder each have laws of their own.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.flow.flow import as_prompt
from services.token2wav.flow.loading import load_flow
from services.token2wav.inputs.request import Growth, Hops, Profile, Sentence
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.vocoder.loading import load_vocoder
from tests.stacks.up_process import TINY3
from tests.unit.token2wav.engines.engines import onnx_backend
from tests.unit.token2wav.speaking import batching, pieces, speak, tokens, voice

LENGTH = 64


@pytest.fixture(scope="module")
def backend() -> Backend:
    return load_backend("torch", EngineSettings(model=TINY3, threads=1, widest_step=8))


@pytest.fixture
async def batcher(backend: Backend) -> AsyncIterator[Batcher]:
    async with batching(backend.decoders) as running:
        yield running


@pytest.mark.parametrize(("prompt", "speed"), [(0, 1.0), (20, 1.0), (25, 1.25)])
async def test_streamed_is_whole(batcher: Batcher, prompt: int, speed: float) -> None:
    whole = await speak(batcher, Sentence(voice(prompt), seed=7, hops=Hops(100), speed=speed), tokens(LENGTH))
    assert len(whole) == 2 * 480 * int(2 * LENGTH / speed)
    for hops, message in ((Hops(), 1), (Hops(30, Growth.EXPONENTIAL), 7)):
        sentence = Sentence(voice(prompt), seed=7, hops=hops, speed=speed)
        assert await speak(batcher, sentence, tokens(LENGTH), message) == whole


async def test_the_first_piece_is_all_that_its_mel_determines(backend: Backend) -> None:
    """A prompt of 20 leaves a first hop of 5 tokens, 10 frames. On a slow machine it would be held
    back and joined with the second one.
    """
    async with batching(backend.decoders, hold_seconds=0.0) as batcher:
        made = await pieces(batcher, Sentence(voice(20), seed=7), tokens(LENGTH))
    assert [piece.samples.size for piece in made][:2] == [480 * (10 - 4) - 3, 24_000]


async def test_the_streamed_samples_are_those_of_a_recomputed_sentence(batcher: Batcher) -> None:
    """Fast path against slow path: no state, everything recomputed under the same masks."""
    directory, said = ModelDirectory(TINY3), voice(20)
    flow, vocoder = load_flow(directory, torch.device("cpu")), load_vocoder(directory, torch.device("cpu"))
    mel = flow.prefix(as_prompt(said), torch.tensor(tokens(LENGTH)), streaming=True, final=True)
    recomputed = vocoder.offline(mel, 7, 0).numpy()
    streamed = np.frombuffer(await speak(batcher, Sentence(said, seed=7), tokens(LENGTH)), "<i2") / 32768
    # Phases amplify the rounding of mel: 480 turns of its sum in a frame.
    assert np.abs(streamed - recomputed).max() < 2e-2
    assert recomputed.std() > 0.05


@pytest.mark.parametrize("profile", list(Profile))
async def test_resumed_is_the_tail(batcher: Batcher, profile: Profile) -> None:
    whole = await speak(batcher, Sentence(voice(20), seed=5, profile=profile), tokens(50))
    for start in (1, 4801, 50 * 960 - 1):
        sentence = Sentence(voice(20), seed=5, profile=profile, start_sample=start)
        assert await speak(batcher, sentence, tokens(50)) == whole[2 * start :]


async def test_four_at_once_are_the_four_one_by_one(batcher: Batcher) -> None:
    requests = [
        (Sentence(voice(prompt), seed=seed, sentence_index=seed), tokens(30 + 5 * seed, offset=seed))
        for seed, prompt in enumerate([0, 20, 25, 30])
    ]
    one_by_one = [await speak(batcher, *request) for request in requests]
    assert await asyncio.gather(*(speak(batcher, *request, message=3) for request in requests)) == one_by_one
    assert len(set(one_by_one)) == 4


async def test_the_laws_hold_on_graphs(backend: Backend, tmp_path: Path) -> None:
    """Streamed = whole, resumed = the tail, together = one by one; and up to rounding the samples
    are those of torch.
    """
    graphs = onnx_backend(tmp_path, model=TINY3)
    said = tokens(LENGTH)
    async with batching(graphs.decoders) as batcher:
        whole = await speak(batcher, Sentence(voice(20), seed=7, hops=Hops(100)), said)
        assert await speak(batcher, Sentence(voice(20), seed=7), said, message=7) == whole
        assert await speak(batcher, Sentence(voice(20), seed=7, start_sample=4801), said) == whole[2 * 4801 :]
        other = Sentence(voice(0), seed=8), tokens(30, offset=2)
        alone = await speak(batcher, *other)
        assert await asyncio.gather(speak(batcher, Sentence(voice(20), seed=7), said), speak(batcher, *other)) == [
            whole,
            alone,
        ]
    async with batching(backend.decoders) as batcher:
        torch_whole = await speak(batcher, Sentence(voice(20), seed=7), said)
    made, wanted = (np.frombuffer(audio, "<i2") / 32768 for audio in (whole, torch_whole))
    # Phases amplify the rounding of mel: 480 turns of its sum in a frame.
    assert np.abs(made - wanted).max() < 2e-2
    assert np.abs(wanted).max() > 0.05
