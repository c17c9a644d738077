"""The bundled model is what its manifest says, small, read by every service, and two voices that
its own listeners recognise.
"""

import json
import tomllib
from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.prompt_cut import audible_first_hop
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import (
    LONGEST_SENTENCE,
    MEL_BINS,
    MEL_FRAMES_PER_TOKEN,
    SAMPLE_RATE,
    SPEAKER_DIMENSION,
    SPEECH_VOCABULARY,
)
from recipes.demo_voice.model_files import layout, manifest
from services.frontend.loading import read_tokenizer
from services.frontend.prompts.features import fbank, whisper_mel
from services.frontend.prompts.features.resample import resample
from services.frontend.voices.speaker_file import read_presets, read_voices
from services.frontend.voices.voice import Voice
from services.llm.engine.weights import load_tensors
from services.llm.generation.config import read_config
from services.token2wav.flow.loading import load_flow
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.vocoder import Vocoder
from tests.stacks.up_process import DEMO

CPU = torch.device("cpu")
MOST_BYTES = 40_000_000
VOICES = ("af_heart", "am_michael")


@dataclass(frozen=True)
class Spoken:
    """A voice and its own prompt, made audible again by the vocoder. wave: [1, samples], 16 kHz.
    pitch: median, Hz.
    """

    voice: Voice
    wave: Tensor
    pitch: float


@pytest.fixture(scope="module")
def directory() -> ModelDirectory:
    return ModelDirectory(DEMO)


@pytest.fixture(scope="module")
def spoken(directory: ModelDirectory) -> dict[str, Spoken]:
    vocoder = load_vocoder(directory, CPU)
    return {voice.id: speak(vocoder, voice) for voice in read_voices(directory, read_tokenizer(directory))}


def speak(vocoder: Vocoder, voice: Voice) -> Spoken:
    mel = torch.from_numpy(np.frombuffer(voice.prompt_mel, "<f4").reshape(-1, MEL_BINS).T.copy())
    f0 = vocoder.f0(mel[None])[0]
    wave = resample(vocoder.offline(mel, seed=1, sentence=0).reshape(1, -1), SAMPLE_RATE, whisper_mel.RATE)
    return Spoken(voice, wave, float(f0[f0 > 50].median()))


def session(name: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(DEMO / name, providers=["CPUExecutionProvider"])


def speech_tokens(wave: Tensor) -> list[int]:
    log_mel = whisper_mel.whisper_log_mel(wave)
    inputs = {"feats": log_mel.numpy(), "feats_length": np.array([log_mel.shape[2]], np.int32)}
    return [int(token) for token in session("speech_tokenizer_v2.onnx").run(None, inputs)[0].flatten()]


def speaker_vector(wave: Tensor) -> Tensor:
    return torch.from_numpy(
        session("campplus.onnx").run(None, {"input": fbank.speaker_features(wave[0])[None].numpy()})[0]
    )[0]


def test_files_are_those_of_the_manifest() -> None:
    content = tomllib.loads((DEMO.parent / manifest.FILE).read_text(encoding="utf-8"))
    assert content["demo"]["files"] == manifest.checksums(DEMO)


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in DEMO.rglob("*") if path.is_file()) <= MOST_BYTES


def test_the_engines_read_it(directory: ModelDirectory) -> None:
    config = read_config(directory)
    tensors = load_tensors(directory, config)
    assert (
        len(read_tokenizer(directory)) <= config.text_vocabulary == len(tensors["llm.model.model.embed_tokens.weight"])
    )
    load_flow(directory, CPU)


def test_its_text_ids_are_phonemes(directory: ModelDirectory) -> None:
    ids = read_tokenizer(directory).encode("It works.")
    assert ids != read_tokenizer(directory).encode("It walks.")
    assert 8 <= len(ids) <= LONGEST_SENTENCE


def test_two_voices_with_prompts(spoken: dict[str, Spoken]) -> None:
    assert tuple(spoken) == VOICES
    for voice in (each.voice for each in spoken.values()):
        tokens = len(voice.prompt_speech_tokens)
        assert voice.prompt_text_ids
        assert tokens % 25 == 11
        # The first hop goes to the grid's next border; the decoder's part of the prompt ends where
        # it is short and can be heard.
        assert len(voice.prompt_mel) == 4 * MEL_BINS * MEL_FRAMES_PER_TOKEN * voice.decoder_tokens
        assert 25 - voice.decoder_tokens % 25 == audible_first_hop(COSYVOICE2)
    assert spoken["am_michael"].pitch < 150 < spoken["af_heart"].pitch


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("speech_tokenizer_v2.onnx", {"feats": [1, 128, "frames"], "feats_length": [1]}, {"indices": [1, "tokens"]}),
        ("campplus.onnx", {"input": ["batch", "frames", 80]}, {"output": ["batch", SPEAKER_DIMENSION]}),
    ],
)
def test_onnx_files_are_called_like_the_published_ones(
    name: str, inputs: dict[str, object], outputs: dict[str, object]
) -> None:
    model = session(name)
    assert {value.name: value.shape for value in model.get_inputs()} == inputs
    assert {value.name: value.shape for value in model.get_outputs()} == outputs


@pytest.mark.parametrize("name", VOICES)
def test_its_speech_tokenizer_hears_what_a_prompt_says(spoken: dict[str, Spoken], name: str) -> None:
    shown = spoken[name].voice
    heard, expected = speech_tokens(spoken[name].wave), shown.prompt_speech_tokens[-shown.decoder_tokens :]
    assert len(heard) == len(expected)
    assert all(0 <= token < SPEECH_VOCABULARY for token in heard)
    same = sum(one == other for one, other in zip(heard, expected, strict=True)) / len(expected)
    print(f"{name}: {same:.0%} of the tokens are heard again")
    assert same > 0.2, "chance is under 0.01"


def test_its_speaker_encoder_tells_the_voices_apart(spoken: dict[str, Spoken]) -> None:
    known = torch.stack(
        [torch.from_numpy(np.frombuffer(spoken[name].voice.speaker_embedding, "<f4").copy()) for name in VOICES]
    )
    heard = torch.stack([speaker_vector(spoken[name].wave) for name in VOICES])
    alike = F.normalize(heard, dim=1) @ F.normalize(known, dim=1).T
    print(alike)
    assert float(alike.diagonal().min()) > 0.6
    assert bool((alike.argmax(dim=1) == torch.arange(len(VOICES))).all())


def test_the_recipe_makes_a_model_of_these_sizes() -> None:
    assert (DEMO / "cosyvoice2.yaml").read_text() == layout.YAML
    assert json.loads((DEMO / "CosyVoice-BlankEN" / "config.json").read_text()) == layout.BACKBONE


def test_each_voice_says_its_language_and_sex(directory: ModelDirectory) -> None:
    notes_by_voice = {voice.id: notes for voice, notes in read_presets(directory, read_tokenizer(directory))}
    assert {name: (notes.language_code, notes.labels.labels["sex"]) for name, notes in notes_by_voice.items()} == {
        "af_heart": ("en-US", "female"),
        "am_michael": ("en-US", "male"),
    }
