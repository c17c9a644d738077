"""The speaker encoder separates the two made-up voices, and its ONNX file is the same network."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from recipes.demo_voice.features import Features
from recipes.demo_voice.speaker import crops, network, objective, train
from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.speech import Speech
from services.frontend.prompts.features.fbank import speaker_features
from services.frontend.prompts.features.resample import resample

CPU = torch.device("cpu")


@pytest.fixture
def features(work: Path, speech: Speech) -> Features:
    return Features.read(work, speech, CPU, only=("fbank",))


@pytest.fixture(scope="module")
def network_drawn() -> dict[str, torch.Tensor]:
    """As a training would ship it, but untrained."""
    torch.manual_seed(0)
    return parameter_store.halved(parameter_store.make(network.shapes(), network.initial, CPU))


def test_features_of_the_training_are_those_of_the_frontend(speech: Speech, features: Features) -> None:
    frames = crops.frames_of(features.tokens[3])
    heard = crops.centred(crops.Crops(features).whole(torch.tensor([3]), frames))[0]
    served = speaker_features(resample(speech.wave(3)[None], 24_000, 16_000)[0])
    assert served.shape == heard.shape
    assert float((served - heard).abs().max()) < 0.02


def test_a_row_does_not_depend_on_its_batch(network_drawn: dict[str, torch.Tensor]) -> None:
    values = {name: tensor.float() for name, tensor in network_drawn.items()}
    heard = torch.randn(3, 30, 80)
    together = network.embed(values, heard)
    torch.testing.assert_close(
        torch.cat([network.embed(values, row[None]) for row in heard]), together, rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(together.norm(dim=1), torch.full((3,), 192**0.5), rtol=1e-3, atol=0)


def test_the_onnx_file_is_the_network(network_drawn: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = tmp_path / "campplus.onnx"
    network.write_onnx(path, network_drawn)
    assert path.stat().st_size < 1.6e6
    for batch, frames in ((1, 7), (2, 130)):
        assert network.largest_difference(path, network_drawn, torch.randn(batch, frames, 80)) < 1e-4
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [(each.name, each.type, each.shape[2]) for each in session.get_inputs()] == [("input", "tensor(float)", 80)]
    assert [(each.name, each.type, each.shape[1]) for each in session.get_outputs()] == [
        ("output", "tensor(float)", 192)
    ]
    first = path.read_bytes()
    network.write_onnx(path, network_drawn)
    assert path.read_bytes() == first


def test_training_separates_voices_resumes_and_writes_what_the_others_read(
    work: Path, speech: Speech, features: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crops, "CROP_FRAMES", (40,))
    train.train(work, 5, CPU, steps=2, batch=6)
    before = (work / train.EMBEDDINGS).stat().st_mtime_ns
    train.train(work, 5, CPU, steps=18, batch=6)
    assert (work / train.EMBEDDINGS).stat().st_mtime_ns > before
    assert parameter_store.load(work / train.FOLDER / "checkpoint.pt")["step"] == 18
    vectors = torch.from_numpy(np.load(work / train.EMBEDDINGS))
    assert (vectors.shape, vectors.dtype) == ((len(speech.utterances), 192), torch.float32)
    known = objective.Voices.of([utterance.voice for utterance in speech.utterances], CPU)
    similarities = objective.scores({"head.voices": torch.eye(192)[:2]}, vectors, known.of_utterance, known)
    assert similarities["equal_error"] < 0.1
    assert similarities["correlation"] > 0.7
    assert {tensor.dtype for tensor in parameter_store.load(work / train.WEIGHTS).values()} == {torch.float16}
    heard = crops.centred(crops.Crops(features).whole(torch.tensor([0]), crops.frames_of(features.tokens[0])))
    session = onnxruntime.InferenceSession(work / train.ONNX, providers=["CPUExecutionProvider"])
    torch.testing.assert_close(
        torch.from_numpy(session.run(None, {"input": heard.numpy()})[0]), vectors[:1], rtol=1e-3, atol=1e-3
    )


def test_a_bundled_encoder_is_kept_as_it_is(
    work: Path, features: Features, network_drawn: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "campplus.onnx"
    network.write_onnx(path, network_drawn)
    train.main([str(work), "--encoder", str(path), "--device", "cpu"])
    assert (work / train.ONNX).read_bytes() == path.read_bytes()
    values = {name: tensor.float() for name, tensor in network_drawn.items()}
    expected = train.embed_utterances(values, features, list(range(len(features.tokens))))
    np.testing.assert_allclose(np.load(work / train.EMBEDDINGS), expected.numpy(), atol=1e-4)
