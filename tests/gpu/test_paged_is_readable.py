"""The paged engine on a CUDA device against the readable one, with the small reference model."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.token2wav.backend import Backend, EngineSettings, load_backend
from services.token2wav.decoder import Decoded, Stride
from services.token2wav.request import Profile, Sentence, Voice

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or find_spec("triton") is None, reason="no CUDA device or no triton"),
]
TINY = Path(__file__).parents[1] / "golden" / "tiny"
CASES = [(40, 60, 1.0), (0, 77, 1.0), (30, 101, 0.8), (26, 5, 1.0)]


def load(**settings: Any) -> Backend:
    paged = EngineSettings(model=TINY, device="cuda", state_bytes=1 << 29, prompt_cache_bytes=1 << 28, gpu_engine="paged")
    return load_backend("torch", replace(paged, **settings))


def voice(prompt: int, key: str = "") -> Voice:
    with np.load(TINY / "flow_mel.npz") as arrays:
        mel = np.resize(arrays["prompt_feat"][0], (2 * prompt, 80)).astype(np.float32)
        return Voice(np.arange(prompt) * 11 % 6561, mel, arrays["spk_embedding"][0].astype(np.float32), key)


def speak(backend: Backend, cases: Sequence[int], key: str = "") -> list[Tensor]:
    decoder = backend.decoders[Profile.CONTINUOUS]
    sentences = [Sentence(voice(CASES[at][0], key), seed=1 << 40 | at, sentence_index=at, speed=CASES[at][2]) for at in cases]
    states = [decoder.start(sentence) for sentence in sentences]
    tokens = [np.random.default_rng(at).integers(0, 6561, CASES[at][1]) for at in cases]
    made: list[list[np.ndarray]] = [[] for _ in cases]
    todo = list(range(len(cases)))
    while todo:
        ends = [len(states[at].prompt) + len(tokens[at]) for at in todo]
        untils = [min(states[at].position // 25 * 25 + 25, end) for at, end in zip(todo, ends, strict=True)]
        strides = [Stride(states[at], tokens[at], until, until == end) for at, until, end in zip(todo, untils, ends, strict=True)]
        for at, stride, result in zip(list(todo), strides, decoder.step(strides), strict=True):
            assert isinstance(result, Decoded)
            made[at].append(result.samples)
            if stride.final:
                todo.remove(at)
    return [torch.from_numpy(np.concatenate(pieces)) for pieces in made]


@pytest.fixture(scope="module")
def readable() -> list[Tensor]:
    return speak(load(gpu_engine="readable"), range(len(CASES)))


@pytest.mark.parametrize("vocoder", ["readable", "windowed"])
def test_float32_is_the_readable_engine_alone_together_and_with_a_kept_prompt(readable: list[Tensor], vocoder: str) -> None:
    paged = load(gpu_precision="float32", gpu_vocoder=vocoder)
    for found, wanted in zip(speak(paged, range(len(CASES))), readable, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=5e-4)
    for at, wanted in enumerate(readable):
        torch.testing.assert_close(speak(paged, [at])[0], wanted, rtol=0, atol=5e-4)
    for _ in range(2):
        torch.testing.assert_close(speak(paged, [0], "kept")[0], readable[0], rtol=0, atol=5e-4)


@pytest.mark.parametrize("vocoder", ["readable", "windowed"])
def test_bfloat16_sounds_alike(readable: list[Tensor], vocoder: str) -> None:
    for found, wanted in zip(speak(load(gpu_vocoder=vocoder), range(len(CASES))), readable, strict=True):
        assert found.shape == wanted.shape
        spectra = [
            torch.stft(x, 1024, window=torch.hann_window(1024), return_complex=True).abs().clamp_min(1e-3).log() for x in (found, wanted)
        ]
        assert float((spectra[0] - spectra[1]).abs().mean()) < 0.3


def test_the_model_directory_is_named() -> None:
    paged, readable = load().identity, load(gpu_engine="readable").identity
    assert paged.model_hash == readable.model_hash
    assert paged.precision == "bfloat16, paged, readable vocoder, batches of up to 32 streams"
    assert paged.device.startswith(f"{readable.device}, triton ")
    assert ModelDirectory(TINY).path.exists()
