"""hift.pt in each of its naming schemes, and the error messages for other files."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.vocoder import load_vocoder
from services.token2wav.vocoder.weights import load_weights, read_config

TINY = Path(__file__).parents[3] / "golden" / "tiny"
GAIN, DIRECTION = ".parametrizations.weight.original0", ".parametrizations.weight.original1"
Tensors = dict[str, Tensor]


def directory(tmp_path: Path, change: Callable[[Tensors], Tensors]) -> ModelDirectory:
    shutil.copy(TINY / "cosyvoice2.yaml", tmp_path)
    torch.save(change(torch.load(TINY / "hift.pt", weights_only=True)), tmp_path / "hift.pt")
    return ModelDirectory(tmp_path)


def load(place: ModelDirectory) -> Tensors:
    return load_weights(place, read_config(place))


def legacy(tensors: Tensors) -> Tensors:
    return {name.replace(GAIN, ".weight_g").replace(DIRECTION, ".weight_v"): tensor for name, tensor in tensors.items()}


def prefixed(tensors: Tensors) -> Tensors:
    return {f"generator.{name}": tensor for name, tensor in tensors.items()}


def fused(tensors: Tensors) -> Tensors:
    return load(ModelDirectory(TINY))


@pytest.mark.parametrize("naming", [legacy, prefixed, lambda tensors: prefixed(legacy(tensors)), fused])
def test_every_naming_gives_the_same_weights(tmp_path: Path, naming: Callable[[Tensors], Tensors]) -> None:
    want, got = load(ModelDirectory(TINY)), load(directory(tmp_path, naming))
    assert want.keys() == got.keys()
    assert all(torch.equal(want[name], got[name]) for name in want)


def test_weight_norm_over_the_first_dimension(tmp_path: Path) -> None:
    raw, got = torch.load(TINY / "hift.pt", weights_only=True), load(ModelDirectory(TINY))
    norm = got["ups.0.weight"].flatten(1).norm(dim=1)
    torch.testing.assert_close(norm, raw[f"ups.0{GAIN}"].flatten().abs())


def test_half_precision_on_disk_is_read_as_float32(tmp_path: Path) -> None:
    got = load(directory(tmp_path, lambda tensors: {name: tensor.half() for name, tensor in tensors.items()}))
    assert {tensor.dtype for tensor in got.values()} == {torch.float32}


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


def with_(name: str, tensor: object) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: tensor}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("conv_post.bias"), r"hift\.pt: missing tensor conv_post\.bias \[18\]"),
        (with_("mpd.0.weight", torch.zeros(3)), r"hift\.pt: extra tensor mpd\.0\.weight \[3\]"),
        (with_("ups.1.bias", torch.zeros(9)), r"hift\.pt: tensor ups\.1\.bias has shape \[9\], expected \[8\]"),
        (
            with_("conv_pre.bias", torch.full((32,), torch.nan)),
            r"hift\.pt: tensor conv_pre\.bias holds values that are not finite",
        ),
        (
            with_(f"conv_pre{DIRECTION}", torch.zeros(32, 80, 7)),
            r"hift\.pt: tensor conv_pre\.weight holds values that are not finite",
        ),
        (
            with_("conv_pre.bias", torch.zeros(32, dtype=torch.int64)),
            r"hift\.pt: tensor conv_pre\.bias is torch\.int64, expected a floating-point type",
        ),
        (with_("generator.conv_pre.bias", torch.zeros(32)), r"hift\.pt: tensor conv_pre\.bias appears twice"),
        (with_("conv_pre.weight", torch.zeros(32, 80, 7)), r"hift\.pt: extra tensor conv_pre\.parametrizations"),
        (lambda tensors: list(tensors), r"hift\.pt: holds a list, expected a mapping of names to tensors"),
    ],
)
def test_wrong_tensors_are_named(tmp_path: Path, change: Callable[[Tensors], Tensors], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_vocoder(directory(tmp_path, change), torch.device("cpu"))


@pytest.mark.parametrize("content", [b"", b"r", b"not a checkpoint", b"\x80\x02cos\nsystem\n(S'true'\ntR."])
def test_a_file_that_is_no_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    shutil.copy(TINY / "cosyvoice2.yaml", tmp_path)
    (tmp_path / "hift.pt").write_bytes(content)
    with pytest.raises(ModelError, match=r"hift\.pt: not a file of tensors"):
        load_vocoder(ModelDirectory(tmp_path), torch.device("cpu"))


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    shutil.copy(TINY / "cosyvoice2.yaml", tmp_path)
    (tmp_path / "hift.pt").write_bytes((TINY / "hift.pt").read_bytes()[:100_000])
    with pytest.raises(ModelError, match=r"hift\.pt: not a file of tensors"):
        load_vocoder(ModelDirectory(tmp_path), torch.device("cpu"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("upsample_rates: [8, 5, 3]", "upsample_rates: [8, 5, 2]", "must make 480 samples"),
        (
            "upsample_rates: [8, 5, 3]",
            "upsample_rates: 8",
            "hift.upsample_rates = 8, expected a list of positive integers",
        ),
        (
            "upsample_kernel_sizes: [16, 11, 7]",
            "upsample_kernel_sizes: [16, 11, 8]",
            "exceed its rate by an even number",
        ),
        ("nsf_alpha: 0.1", "nsf_alpha: loud", "hift.nsf_alpha = 'loud', expected a number"),
        ("base_channels: 32", "base_channels: 30", "base_channels must be divisible by 8"),
        ("cond_channels: 32", "cond_channels: 0", "hift.f0_predictor.cond_channels = 0, expected a positive integer"),
        ("    istft_params:", "    istft:", "no key hift.istft_params"),
        (
            "source_resblock_kernel_sizes: [7, 7, 11]",
            "source_resblock_kernel_sizes: [7, 7, 10]",
            "source_resblock_kernel_sizes must be odd",
        ),
    ],
)
def test_a_configuration_that_cannot_be_followed_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    shutil.copy(TINY / "hift.pt", tmp_path)
    yaml = (TINY / "cosyvoice2.yaml").read_text()
    assert old in yaml
    (tmp_path / "cosyvoice2.yaml").write_text(yaml.replace(old, new))
    with pytest.raises(ModelError, match=message):
        load_vocoder(ModelDirectory(tmp_path), torch.device("cpu"))
