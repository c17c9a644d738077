"""The noise of the reference, drawn again from the sizes of the published layers; the yaml and the
tensors of causal HiFT that are refused.
"""

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cosyserve.errors import InvalidRequest, ModelError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.causal.source import ReferenceNoise
from services.token2wav.vocoder.causal.weights import read_config, read_weights
from services.token2wav.vocoder.loading import NETWORKS, load_vocoder
from services.token2wav.vocoder.weights import read_config as read_hift_config

GOLDEN = Path(__file__).parents[3] / "golden"
TINY3 = GOLDEN / "tiny3"
CPU = torch.device("cpu")
GAIN, DIRECTION = ".parametrizations.weight.original0", ".parametrizations.weight.original1"
Tensors = dict[str, Tensor]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the golden model."""
    for name in ("cosyvoice3.yaml", "hift.pt"):
        shutil.copy(TINY3 / name, tmp_path)
    return tmp_path


def rewritten(model: Path, line: str, other: str) -> ModelDirectory:
    yaml = model / "cosyvoice3.yaml"
    text = yaml.read_text()
    assert line in text
    yaml.write_text(text.replace(line, other))
    return ModelDirectory(model)


def test_the_published_noise(model: Path) -> None:
    """Numbers of the compatibility specification, section 5.3."""
    directory = rewritten(model, "cond_channels: 32", "cond_channels: 512")
    drawn = ReferenceNoise(directory, read_config(directory))
    first = drawn.first(240_000)[0].numpy()
    assert [f"{value:.8f}" for value in first[0]] == [
        "0.92282599", "0.47744751", "0.82705182", "0.28345716", "0.79348159", "0.17343479", "0.85237503", "0.92285460",
        "0.73101997",
    ]  # fmt: skip
    assert [f"{value:.8f}" for value in first[1, :2]] == ["0.92034292", "0.24373299"]
    assert f"{float(drawn.initial_phases[0, 1]):.8f}" == "0.17098892"
    expected = "d29b520e5b34f6d0db5b5475a62255b61c60ccd23e16cf3d72b5b657873de8ce"
    assert hashlib.sha256(np.ascontiguousarray(first)).hexdigest() == expected
    assert torch.equal(drawn.first(100), drawn.first(240_000)[:, :100])


def test_the_noise_ends_after_five_minutes() -> None:
    directory = ModelDirectory(TINY3)
    with pytest.raises(InvalidRequest, match=r"^300.1 seconds of sound: profile upstream has noise for 300 seconds"):
        ReferenceNoise(directory, read_config(directory)).first(7_202_400)


def test_noise_without_a_flow_is_refused(model: Path) -> None:
    with pytest.raises(ModelError, match=r"the yaml has no key flow.input_size"):
        load_vocoder(rewritten(model, "    input_size: 80\n", ""), CPU)


@pytest.mark.parametrize(
    ("line", "other", "complaint"),
    [
        ("conv_pre_look_right: 4", "conv_pre_look: 4", "the yaml has no key hift.conv_pre_look_right"),
        (
            "upsample_kernel_sizes: [16, 11, 7]",
            "upsample_kernel_sizes: [16, 4, 7]",
            "no upsample kernel may be shorter",
        ),
        ("upsample_rates: [8, 5, 3]", "upsample_rates: [8, 5, 2]", "must make 480 samples"),
        ("num_class: 1", "num_class: 2", "hift.f0_predictor.num_class = 2; only 1 is implemented"),
        ("CausalHiFTGenerator", "HiFTGenerator", "hift is a HiFTGenerator, of CosyVoice2"),
    ],
)
def test_a_wrong_yaml_is_named(model: Path, line: str, other: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=re.escape(complaint)):
        load_vocoder(rewritten(model, line, other), CPU)


def changed(model: Path, change: Callable[[Tensors], Tensors]) -> ModelDirectory:
    torch.save(change(torch.load(model / "hift.pt", weights_only=True)), model / "hift.pt")
    return ModelDirectory(model)


@pytest.mark.parametrize(
    ("name", "tensor", "complaint"),
    [
        ("ups.0.bias", None, "missing tensor ups.0.bias [16]"),
        ("mpd.0.weight", torch.zeros(3), "extra tensor mpd.0.weight [3]"),
        (
            f"ups.0{DIRECTION}",
            torch.zeros(32, 16, 16),
            f"ups.0{DIRECTION} has shape [32, 16, 16], expected [16, 32, 16]",
        ),
        (
            f"f0_predictor.condnet.0{DIRECTION}",
            torch.zeros(32, 80, 3),
            f"f0_predictor.condnet.0{DIRECTION} has shape [32, 80, 3], expected [32, 80, 4]",
        ),
        ("conv_pre.bias", torch.full((32,), torch.nan), "tensor conv_pre.bias holds values that are not finite"),
    ],
)  # fmt: skip
def test_a_wrong_tensor_is_named(model: Path, name: str, tensor: Tensor | None, complaint: str) -> None:
    def change(tensors: Tensors) -> Tensors:
        return {key: value for key, value in {**tensors, name: tensor}.items() if value is not None}

    with pytest.raises(ModelError, match=re.escape(complaint)):
        load_vocoder(changed(model, change), CPU)


def legacy(tensors: Tensors) -> Tensors:
    return {
        "generator." + name.replace(GAIN, ".weight_g").replace(DIRECTION, ".weight_v"): tensor
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("change", [legacy, lambda tensors: {f"generator.{name}": t for name, t in tensors.items()}])
def test_every_spelling_gives_the_same_weights(model: Path, change: Callable[[Tensors], Tensors]) -> None:
    directory = ModelDirectory(model)
    plain = read_weights(directory, read_config(directory))
    spelled = read_weights(changed(model, change), read_config(directory))
    assert all(torch.equal(spelled[name], tensor) for name, tensor in plain.items())


def test_fused_weights_are_taken_as_they_are(model: Path) -> None:
    directory = ModelDirectory(model)
    plain = read_weights(directory, read_config(directory))
    fused = read_weights(changed(model, lambda _: plain), read_config(directory))
    assert all(torch.equal(fused[name], tensor) for name, tensor in plain.items())
    assert {tensor.dtype for name, tensor in fused.items() if name.startswith("f0_")} == {torch.float64}


def test_the_network_of_another_generation_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"its vocoder is the network causal-hift; this runs hift$"):
        read_hift_config(ModelDirectory(TINY3))
    with pytest.raises(ModelError, match=r"its vocoder is the network hift; this runs causal-hift$"):
        read_config(ModelDirectory(GOLDEN / "tiny"))


def test_an_unknown_network_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(NETWORKS, "causal-hift")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"the vocoder network causal-hift is not known; there are hift$"):
        load_vocoder(ModelDirectory(TINY3), CPU)
