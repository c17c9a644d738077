"""The vocoder's training: pitch is found, gradients reach every tensor of the served network, and
what is written can be served.
"""

import json
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from recipes.demo_voice.training.progress import Schedule
from recipes.demo_voice.training.recording import RecordingFailed
from recipes.demo_voice.training.speech import Speech
from recipes.demo_voice.vocoder import generator, pitch, train
from recipes.demo_voice.vocoder.generator import Snake
from recipes.demo_voice.vocoder.segments import RandomPieces
from recipes.demo_voice.vocoder.training import Training
from services.token2wav.vocoder import hift, weights
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.weights import FILE, VocoderConfig, read_config
from tests.unit.recipes.small_work import VOICES, smaller

SOUND = 8
NARROW = {"base_channels: 192": "base_channels: 32", "cond_channels: 128": "cond_channels: 32"}


@pytest.fixture(scope="module")
def work(work: Path) -> Path:
    smaller(work, NARROW)
    return work


@pytest.fixture(scope="module")
def config(work: Path) -> VocoderConfig:
    return read_config(ModelDirectory(work / "model"))


@pytest.fixture
def draws(speech: Speech) -> RandomPieces:
    return RandomPieces(speech, *pitch.of_speech(speech), SOUND, np.random.default_rng(0))


@pytest.fixture
def training(config: VocoderConfig, draws: RandomPieces) -> Training:
    return Training(config, draws, Schedule(minutes=1e9, step=200), torch.device("cpu"), width=2)


@pytest.fixture
def one_batch(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same segments at every step."""
    segments = training.draws.next(2)
    monkeypatch.setattr(training.draws, "next", lambda count: segments)


def test_pitch_of_every_voice_is_found(speech: Speech) -> None:
    f0, first = pitch.of_speech(speech)
    for each in speech.utterances:
        tracked = f0[first[each.number] :][: each.samples // 480]
        assert (1200 * torch.log2(tracked / VOICES[each.voice])).abs().median() < 5


def test_the_activation_is_the_services_own() -> None:
    x = torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    assert torch.allclose(Snake(alpha)(x), hift.Snake(alpha)(x))
    assert torch.autograd.gradcheck(lambda x, alpha: Snake(alpha)(x), (x, alpha))


def test_fused_weights_are_the_services_own(config: VocoderConfig) -> None:
    parameters = generator.make(config, torch.device("cpu"))
    ours, theirs = generator.fused(parameters), weights.fused(parameters)
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], tensor, atol=1e-6) for name, tensor in theirs.items())


@pytest.mark.usefixtures("one_batch")
def test_gradients_reach_every_tensor_and_spectra_come_nearer(training: Training) -> None:
    training.adversarial_from = 2.0
    before = {name: tensor.detach().clone() for name, tensor in training.parameters.items()}
    terms = [training.step(2) for _ in range(10)]
    assert not [name for name, tensor in training.parameters.items() if torch.equal(tensor, before[name])]
    assert terms[-1]["mels"] < 0.96 * terms[0]["mels"]
    assert terms[-1]["pitch"] < 0.9 * terms[0]["pitch"]


def test_a_broken_gradient_changes_nothing(training: Training) -> None:
    before = [tensor.detach().clone() for tensor in training.sound.parameters]
    gradients = [torch.ones_like(tensor) for tensor in before]
    training.sound.step([torch.full_like(gradients[0], torch.nan), *gradients[1:]], torch.tensor(1e-3))
    assert all(map(torch.equal, before, training.sound.parameters))
    assert training.skipped == 1
    training.sound.step(gradients, torch.tensor(1e-3))
    assert not any(map(torch.equal, before, training.sound.parameters))


def test_what_is_written_is_served_and_gone_on_from(work: Path) -> None:
    options = ["--batch", "2", "--frames", str(SOUND), "--device", "cpu", "--adversarial-from", "2"]
    for steps in (1, 2):
        train.main([str(work), "--name", "v", "--steps", str(steps), *options])
    lines = [json.loads(line) for line in (work / "v" / "journal.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 1, 2, 2]
    assert lines[-1]["held_out_mel"] > 0
    assert {path.name for path in (work / "v").glob("*.wav")} == {"0.wav", "1.wav", "0-true.wav", "1-true.wav"}
    served = work / "served"
    served.mkdir()
    (served / "cosyvoice2.yaml").symlink_to(work / "model" / "cosyvoice2.yaml")
    (served / FILE).symlink_to(work / "v" / FILE)
    assert load_vocoder(ModelDirectory(served), torch.device("cpu")).offline(torch.randn(80, 10), 0, 0).shape == (4800,)


def test_what_cannot_be_recorded_goes_on_without(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded, started = Mock(side_effect=RecordingFailed("kind: reason")), Mock()
    monkeypatch.setattr(train, "train", recorded)
    monkeypatch.setattr(train.os, "execv", started)
    train.main(["W", "--graphs", "--device", "cpu"])
    assert recorded.call_args.kwargs["graphs"]
    command = ["-m", "recipes.demo_voice.vocoder.train", "W", "--graphs", "--device", "cpu", "--no-graphs"]
    started.assert_called_once_with(sys.executable, [sys.executable, *command])
    assert "reason" in capsys.readouterr().out
