"""The bundled model is what its manifest says, what its recipe writes, and audible."""

import tomllib
from pathlib import Path

import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.frontend.speaker_file import read_voices
from services.frontend.tokenizer import TextTokenizer
from services.token2wav.continuous import as_prompt
from services.token2wav.flow.flow import Flow, load_flow
from services.token2wav.request import Voice as PromptBytes
from services.token2wav.vocoder.vocoder import Vocoder, load_vocoder
from tools.hum.draws import Draws
from tools.make_demo_model import DEMO, checksums, write

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def engines() -> tuple[Flow, Vocoder]:
    directory = ModelDirectory(DEMO)
    return load_flow(directory, CPU), load_vocoder(directory, CPU)


def hum(engines: tuple[Flow, Vocoder], voice_id: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples and f0 of three seconds."""
    flow, vocoder = engines
    directory = ModelDirectory(DEMO)
    (voice,) = (v for v in read_voices(directory, TextTokenizer(directory)) if v.id == voice_id)
    prompt = as_prompt(PromptBytes.from_bytes(list(voice.prompt_speech_tokens), voice.prompt_mel, voice.speaker_embedding, ""))
    mel = flow.offline(prompt, Draws(1).below("tokens", 6561, 75).long())
    return vocoder.offline(mel, seed=1, sentence=0), vocoder.f0(mel[None])[0]


def test_files_are_those_of_the_manifest() -> None:
    manifest = tomllib.loads((DEMO.parent / "manifest.toml").read_text())
    assert manifest["demo"]["files"] == checksums(DEMO)


def test_the_recipe_writes_the_same_tensors(tmp_path: Path) -> None:
    write(tmp_path)
    for name in ("llm.pt", "flow.pt", "hift.pt"):
        bundled, made = (torch.load(directory / name, weights_only=True) for directory in (DEMO, tmp_path))
        assert bundled.keys() == made.keys()
        assert all(torch.equal(bundled[key], made[key]) for key in bundled), name
    bundled, made = (torch.load(directory / "spk2info.pt", weights_only=True) for directory in (DEMO, tmp_path))
    for voice, fields in bundled.items():
        for field, tensor in fields.items():
            torch.testing.assert_close(made[voice][field], tensor, rtol=0, atol=0.011)
    for text in ("cosyvoice2.yaml", "CosyVoice-BlankEN/config.json", "CosyVoice-BlankEN/vocab.json"):
        assert (tmp_path / text).read_bytes() == (DEMO / text).read_bytes()


@pytest.mark.parametrize("voice", ["hum_high", "hum_low"])
def test_it_is_audible_and_swells(engines: tuple[Flow, Vocoder], voice: str) -> None:
    samples, _ = hum(engines, voice)
    samples = samples.flatten()
    assert len(samples) == 75 * 960
    assert 0.02 < float(samples.std()) < 0.3
    assert abs(float(samples.mean())) < 0.01
    assert float((samples.abs() > 0.98).float().mean()) < 1e-3
    loudness = samples.reshape(-1, 2400).std(dim=1)
    assert float(loudness.max()) > 1.3 * float(loudness.min())


def test_the_voices_differ_in_pitch(engines: tuple[Flow, Vocoder]) -> None:
    high, low = (float(hum(engines, voice)[1].median()) for voice in ("hum_high", "hum_low"))
    assert 100 < low < 150 < high < 230
