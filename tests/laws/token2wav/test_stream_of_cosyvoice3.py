"""Law: the streamed samples of a CosyVoice3 model are those recomputed without state, and engines
of exported graphs keep the laws of streams too. Its flow and its vocoder have laws of their own.
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
from services.token2wav.inputs.request import Hops, Sentence
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
