"""What is refused of flow.pt, of hift.pt and of their sections of the yaml, with the error
messages; and hift.pt in each of its naming schemes.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.loading import load_flow
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.weights import load_weights, read_config
from tests.stacks.up_process import TINY, TINY3

CPU = torch.device("cpu")
QUERIES = "decoder.estimator.mid_blocks.1.1.0.attn1.to_q.weight"
GAIN, DIRECTION = ".parametrizations.weight.original0", ".parametrizations.weight.original1"
Tensors = dict[str, Tensor]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the golden model."""
    for name in ("cosyvoice2.yaml", "flow.pt", "hift.pt"):
        shutil.copy(TINY / name, tmp_path)
    return tmp_path


def changed(model: Path, file: str, change: Callable[[Tensors], object]) -> ModelDirectory:
    torch.save(change(torch.load(model / file, weights_only=True)), model / file)
    return ModelDirectory(model)


def refused(model: Path, file: str) -> str:
    with pytest.raises(ModelError) as caught:
        (load_flow if file == "flow.pt" else load_vocoder)(ModelDirectory(model), CPU)
    return str(caught.value)


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


def with_(name: str, tensor: Tensor) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: tensor}


@pytest.mark.parametrize(
    ("file", "change", "complaint"),
    [
        ("flow.pt", without(QUERIES), f"missing tensor {QUERIES} [64, 32]"),
        ("flow.pt", with_("decoder.rand_noise", torch.zeros(1, 80, 4)), "extra tensor decoder.rand_noise [1, 80, 4]"),
        (
            "flow.pt",
            with_(QUERIES, torch.zeros(64, 31)),
            f"tensor {QUERIES} has shape [64, 31], expected [64, 32]",
        ),
        (
            "flow.pt",
            with_(QUERIES, torch.zeros(64, 32, dtype=torch.int8)),
            f"tensor {QUERIES} is torch.int8, expected a floating-point type",
        ),
        (
            "flow.pt",
            with_(QUERIES, F.pad(torch.full((1, 1), torch.inf), (3, 28, 3, 60))),
            f"tensor {QUERIES} has values that are not finite",
        ),
        ("flow.pt", lambda tensors: [1], "holds a list, expected a mapping of names to tensors"),
        ("flow.pt", lambda tensors: {"a": 1}, "entry 'a' is a int, expected a tensor"),
        ("hift.pt", without("conv_post.bias"), "missing tensor conv_post.bias [18]"),
        ("hift.pt", with_("mpd.0.weight", torch.zeros(3)), "extra tensor mpd.0.weight [3]"),
        ("hift.pt", with_("ups.1.bias", torch.zeros(9)), "tensor ups.1.bias has shape [9], expected [8]"),
        (
            "hift.pt",
            with_("conv_pre.bias", torch.full((32,), torch.nan)),
            "tensor conv_pre.bias holds values that are not finite",
        ),
        (
            "hift.pt",
            with_(f"conv_pre{DIRECTION}", torch.zeros(32, 80, 7)),
            "tensor conv_pre.weight holds values that are not finite",
        ),
        (
            "hift.pt",
            with_("conv_pre.bias", torch.zeros(32, dtype=torch.int64)),
            "tensor conv_pre.bias is torch.int64, expected a floating-point type",
        ),
        (
            "hift.pt",
            with_("generator.conv_pre.bias", torch.zeros(32)),
            "tensor conv_pre.bias appears twice, the second time as generator.conv_pre.bias",
        ),
        (
            "hift.pt",
            with_("conv_pre.weight", torch.zeros(32, 80, 7)),
            f"extra tensor conv_pre{GAIN} [32, 1, 1]; extra tensor conv_pre{DIRECTION} [32, 80, 7]",
        ),
        ("hift.pt", list, "holds a list, expected a mapping of names to tensors"),
    ],
)
def test_a_wrong_tensor_is_named(model: Path, file: str, change: Callable[[Tensors], object], complaint: str) -> None:
    changed(model, file, change)
    assert refused(model, file) == f"{model / file}: {complaint}"


class _Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('ran')",)


def hostile(path: Path) -> bytes:
    """A file that would run code when it is read as any pickle is."""
    torch.save({"input_embedding.weight": _Hostile()}, path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("flow.pt", hostile),
        ("flow.pt", lambda path: b"\x80\x04no pickle"),
        ("flow.pt", lambda path: path.read_bytes()[:100_000]),
        ("flow.pt", lambda path: b""),
        ("hift.pt", lambda path: b""),
        ("hift.pt", lambda path: b"r"),
        ("hift.pt", lambda path: b"not a checkpoint"),
        ("hift.pt", lambda path: b"\x80\x02cos\nsystem\n(S'true'\ntR."),
        ("hift.pt", lambda path: path.read_bytes()[:100_000]),
    ],
)
def test_a_file_that_holds_no_tensors_is_refused_without_running_it(
    model: Path, file: str, content: Callable[[Path], bytes]
) -> None:
    (model / file).write_bytes(content(model / file))
    assert refused(model, file).startswith(f"{model / file}: not a file of tensors")


def test_a_missing_file_is_named(model: Path) -> None:
    (model / "flow.pt").unlink()
    assert refused(model, "flow.pt").startswith(f"{model / 'flow.pt'}: missing")


@pytest.mark.parametrize(
    ("line", "other", "complaint"),
    [
        (
            "channels: [32]",
            "channels: [32, 32]",
            "flow.decoder.estimator.channels = [32, 32]; only one level is implemented",
        ),
        ("n_blocks: 2", "n_blocks: 0", "flow.decoder.estimator.n_blocks = 0, expected a positive integer"),
        (
            "solver: 'euler'",
            "solver: 'heun'",
            "flow.decoder.cfm_params.content.solver = 'heun'; only 'euler' is implemented",
        ),
        ("inference_cfg_rate: 0.7", "inference_cfg_rate: high", "inference_cfg_rate = 'high', expected a number"),
        (
            "attention_heads: 4",
            "attention_heads: 5",
            "flow.encoder.output_size 48 is no even multiple of flow.encoder.attention_heads 5",
        ),
        ("vocab_size: 6561", "vocab_size: 4096", "flow.vocab_size = 4096; only 6561 is implemented"),
        (
            "spk_embed_dim: !ref <spk_embed_dim>",
            "spk_embed_dim: 256",
            "flow.spk_embed_dim = 256; only 192 is implemented",
        ),
        (
            "spk_emb_dim: 80\n",
            "spk_emb_dim: 80\n        temperature: 1.5\n",
            "flow.decoder.temperature = 1.5, expected a number",
        ),
        ("linear_units: 128", "linear: 128", "the yaml has no key flow.encoder.linear_units"),
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
def test_a_yaml_of_another_model_is_refused(model: Path, line: str, other: str, complaint: str) -> None:
    path = model / "cosyvoice2.yaml"
    assert line in path.read_text()
    path.write_text(path.read_text().replace(line, other))
    assert complaint in refused(model, "flow.pt" if "flow." in complaint or "inference_cfg" in complaint else "hift.pt")


def load(directory: ModelDirectory) -> Tensors:
    return load_weights(directory, read_config(directory))


def legacy(tensors: Tensors) -> Tensors:
    return {name.replace(GAIN, ".weight_g").replace(DIRECTION, ".weight_v"): tensor for name, tensor in tensors.items()}


def prefixed(tensors: Tensors) -> Tensors:
    return {f"generator.{name}": tensor for name, tensor in tensors.items()}


def fused(tensors: Tensors) -> Tensors:
    return load(ModelDirectory(TINY))


@pytest.mark.parametrize("naming", [legacy, prefixed, lambda tensors: prefixed(legacy(tensors)), fused])
def test_every_naming_gives_the_same_weights(model: Path, naming: Callable[[Tensors], Tensors]) -> None:
    want, got = load(ModelDirectory(TINY)), load(changed(model, "hift.pt", naming))
    assert want.keys() == got.keys()
    assert all(torch.equal(want[name], got[name]) for name in want)


def test_weight_norm_over_the_first_dimension() -> None:
    raw = torch.load(TINY / "hift.pt", weights_only=True)
    norm = load(ModelDirectory(TINY))["ups.0.weight"].flatten(1).norm(dim=1)
    torch.testing.assert_close(norm, raw[f"ups.0{GAIN}"].flatten().abs())


def test_half_precision_on_disk_is_read_as_float32(model: Path) -> None:
    got = load(changed(model, "hift.pt", lambda tensors: {name: tensor.half() for name, tensor in tensors.items()}))
    assert {tensor.dtype for tensor in got.values()} == {torch.float32}


@pytest.mark.parametrize("file", ["flow.pt", "hift.pt"])
@pytest.mark.parametrize(
    ("bundle", "other", "titles"),
    [
        (TINY, TINY3, "those of CosyVoice3; the directory's yaml is of CosyVoice2"),
        (TINY3, TINY, "those of CosyVoice2; the directory's yaml is of CosyVoice3"),
    ],
    ids=["tiny", "tiny3"],
)
def test_a_file_of_the_other_generation_is_recognised(
    tmp_path: Path, bundle: Path, other: Path, titles: str, file: str
) -> None:
    shutil.copy(next(bundle.glob("*.yaml")), tmp_path)
    for name in ("flow.pt", "hift.pt"):
        shutil.copy((other if name == file else bundle) / name, tmp_path)
    assert refused(tmp_path, file) == (
        f"{tmp_path}/{file}: its tensors are {titles}, and a model directory holds one model"
    )
