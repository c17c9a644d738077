"""`python -m services.token2wav`: what makes the start fail, with which message and exit status;
the candidates for the engine, and the errors if they cannot serve.
"""

import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from cosyserve.engines import benchmark_note as engine_note
from cosyserve.errors import SettingsError
from services.token2wav import loading
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.decoders.engine_identity import device_text, paged_precision_text, precision_text
from services.token2wav.loading import candidates, load_backend, load_chosen, tensorrt_first
from tests.stacks.up_process import ROOT, TINY3, run_service
from tests.unit.token2wav.speaking import TINY, torch_backend


@pytest.mark.parametrize(
    ("settings", "status", "words"),
    [
        ({}, 2, "COSYSERVE_TOKEN2WAV_LISTEN is not set and has no default"),
        ({"LISTEN": "127.0.0.1:0", "MODLE": "x"}, 2, "COSYSERVE_TOKEN2WAV_MODLE is not a setting of this service"),
        ({"LISTEN": "127.0.0.1:0", "MAX_STREAMS": "0"}, 2, "max_streams is 0; it must be at least 1"),
        ({"LISTEN": "127.0.0.1:0", "RESERVE_TOKENS": "-1"}, 2, "reserve_tokens is -1; it must not be negative"),
        ({"LISTEN": "127.0.0.1:0", "IDLE_SECONDS": "0"}, 2, "idle_seconds is 0; it must be more than 0"),
        ({"LISTEN": "127.0.0.1:0", "HOLD_SECONDS": "6"}, 2, "hold_seconds is 6; 0 to 5 is allowed"),
        (
            {"LISTEN": "127.0.0.1:0", "BACKEND": "onnx"},
            2,
            "backend 'onnx' is not known; there are torch, tensorrt, onnxruntime, fake",
        ),
        ({"LISTEN": "127.0.0.1:0"}, 2, "backend torch needs a model directory, and none is set"),
        ({"LISTEN": "127.0.0.1:0", "MODEL": "/nowhere"}, 3, "/nowhere: no such model directory"),
    ],
)
def test_a_start_that_cannot_succeed_ends_in_one_line(settings: dict[str, str], status: int, words: str) -> None:
    ended = run_service("token2wav", **settings)
    last = ended.stderr.strip().splitlines()[-1]
    assert (ended.returncode, words in last) == (status, True), ended.stderr


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("hpu", "device 'hpu' is not known; there are cpu, cuda and cuda:N"),
        ("cuda:99", "device 'cuda:99' cannot be used: "),
    ],
)
def test_a_device_that_is_not_there_is_named(device: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"^{words}"):
        torch_backend(device=device)


def test_a_model_that_cannot_speak_ends_the_start_in_one_line(tmp_path: Path) -> None:
    """Weights that are finite one by one, but the first sentence overflows."""
    model = Path(shutil.copytree(TINY, tmp_path / "model"))
    tensors = torch.load(model / "flow.pt", weights_only=True)
    tensors["encoder_proj.weight"].fill_(3e38)
    torch.save(tensors, model / "flow.pt")
    words = f"{model}: the engine cannot speak its first sentence: the flow produced values"
    ended = run_service("token2wav", LISTEN="127.0.0.1:0", MODEL=str(model))
    assert (ended.returncode, "Traceback" in ended.stderr) == (3, False)
    assert words in ended.stderr.splitlines()[-1]


def test_a_directory_with_the_older_yaml_name_is_served(tmp_path: Path) -> None:
    model = Path(shutil.copytree(TINY, tmp_path / "model"))
    (model / "cosyvoice2.yaml").rename(model / "cosyvoice.yaml")
    older = load_backend("torch", EngineSettings(model=model))
    assert older.identity.model_hash != torch_backend().identity.model_hash


def test_engines_that_round_differently_have_different_identities() -> None:
    cpu = torch.device("cpu")
    assert device_text(cpu, 1) == torch_backend().identity.device
    assert device_text(cpu, 1).endswith(f" 1 thread, torch {torch.__version__}")
    assert device_text(cpu, 1) != device_text(cpu, 2)
    assert len({precision_text(False, width) for width in (1, 8, 16)}) == 3
    assert (
        precision_text(True, 1)
        == precision_text(True, 16)
        == torch_backend(widest_step=4).identity.precision
        == "float32"
    )


def test_the_fake_needs_no_tensor_library() -> None:
    script = (
        "import sys; from services.token2wav.loading import *; load_backend('fake', EngineSettings());"
        "import services.token2wav.__main__; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("choice", "there_are"),
    [
        ("gpu_engine", "auto, paged, readable"),
        ("gpu_precision", "bfloat16, float32"),
        ("gpu_kv_precision", "operands, int8, float8"),
        ("gpu_vocoder", "readable, windowed"),
        ("gpu_clusters", "auto, off"),
    ],
)
def test_a_choice_for_a_gpu_that_is_not_there_is_named_on_the_cpu_too(choice: str, there_are: str) -> None:
    with pytest.raises(SettingsError, match=f"{choice} 'fast' is not known; there are {there_are}"):
        load_backend("torch", replace(EngineSettings(model=Path("models/demo")), **{choice: "fast"}))


@pytest.mark.parametrize(("model", "shortest"), [(TINY, 11), (TINY3, 3)])
def test_the_shortest_first_hop_is_the_generations(model: Path, shortest: int) -> None:
    settings = EngineSettings(model=model, first_hop_tokens=shortest)
    assert f"first hop of {shortest} tokens" in load_backend("torch", settings).identity.precision
    with pytest.raises(SettingsError, match=f"first_hop_tokens is {shortest - 1}; .* else {shortest} to 25 is allowed"):
        load_backend("torch", replace(settings, first_hop_tokens=shortest - 1))


def test_an_engine_that_cuts_prompts_by_itself_says_so_unless_they_are_to_stay_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = load_backend("fake", EngineSettings())
    assert (plain.first_hop_tokens, "first hop" in plain.identity.precision) == (0, False)
    monkeypatch.setattr(loading, "_load", lambda name, settings: replace(plain, first_hop_tokens=20))
    cut, whole = load_backend("torch", EngineSettings()), load_backend("torch", EngineSettings(first_hop_tokens=0))
    assert (cut.first_hop_tokens, whole.first_hop_tokens) == (20, 0)
    assert cut.identity.precision == f"{plain.identity.precision}, first hop of 20 tokens"
    assert whole.identity == plain.identity


def test_the_paged_engine_names_all_that_rounds() -> None:
    texts = {
        paged_precision_text(*parts)
        for parts in product(
            ("bfloat16", "float32"), ("readable", "windowed"), (16, 32), ("operands", "int8", "float8"), (0, 2)
        )
    }
    assert len(texts) == 48
    assert texts >= {
        "float32, paged, windowed vocoder of ieee, batches of up to 16 streams",
        "float32, paged, readable vocoder, batches of up to 16 streams",
        "bfloat16, paged, windowed vocoder of float16, batches of up to 32 streams",
        "bfloat16, paged with keys and values in int8, windowed vocoder of float16, batches of up to 32 streams",
        "bfloat16, paged, readable vocoder, batches of up to 16 streams, up to 2 in clusters",
    }


def names(backend: str, auto_first: str = "", **changes: object) -> list[str]:
    settings = EngineSettings(**changes)  # type: ignore[arg-type]
    return [
        name for name, _, _ in candidates(backend, settings, tensorrt=tensorrt_first(backend, settings, auto_first))
    ]


@pytest.mark.parametrize(
    ("backend", "auto_first", "changes", "expected"),
    [
        ("auto", "", {"device": "auto"}, ["paged", "readable", "cpu"]),
        ("auto", "", {"device": "cuda:1"}, ["paged", "readable"]),
        ("auto", "", {"device": "cpu"}, ["cpu"]),
        ("auto", "tensorrt", {"device": "auto"}, ["tensorrt", "paged", "readable", "cpu"]),
        ("auto", "tensorrt", {"device": "cuda:1"}, ["tensorrt", "paged", "readable"]),
        ("auto", "tensorrt", {"device": "cpu"}, ["cpu"]),
        ("torch", "tensorrt", {"device": "auto"}, ["paged", "readable", "cpu"]),
        ("torch", "", {"device": "auto"}, ["paged", "readable", "cpu"]),
        ("torch", "", {"device": "cuda", "gpu_engine": "paged"}, ["paged"]),
        ("auto", "", {"device": "auto", "gpu_engine": "paged"}, ["paged"]),
        ("auto", "", {"device": "auto", "gpu_engine": "readable"}, ["readable", "cpu"]),
        ("auto", "", {"device": "cpu", "gpu_engine": "paged"}, ["cpu"]),
        ("tensorrt", "", {"device": "auto"}, ["tensorrt"]),
        ("onnxruntime", "", {"device": "auto"}, ["onnxruntime"]),
        ("fake", "", {"device": "auto"}, ["fake"]),
    ],
)
def test_the_candidates_are_what_backend_and_device_allow(
    backend: str, auto_first: str, changes: dict[str, object], expected: list[str]
) -> None:
    assert names(backend, auto_first, **changes) == expected


def test_tensorrt_that_was_measured_to_be_faster_here_comes_first(tmp_path: Path) -> None:
    facts = engine_note.facts(engine_note.TOKEN2WAV, TINY, "fp16")
    engine_note.write(tmp_path, facts, "tensorrt", {"compile+fp16": 0.2, "trt+fp16": 0.1})
    measured = {"device": "auto", "engines": tmp_path, "model": TINY}
    assert names("auto", **measured, engine_precision="fp16") == ["tensorrt", "paged", "readable", "cpu"]
    assert names("auto", **measured, engine_precision="fp32") == ["paged", "readable", "cpu"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"device": "tpu"}, "device 'tpu' is not known"), ({"gpu_engine": "x", "device": "cuda"}, "'x'")],
)
def test_what_is_not_known_is_said_by_the_loader(changes: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_chosen("auto", EngineSettings(model=TINY, **changes))  # type: ignore[arg-type]


def test_a_machine_without_a_gpu_ends_on_the_cpu_and_says_why() -> None:
    footing = load_chosen("auto", EngineSettings(model=TINY, device="auto"), auto_first="tensorrt")
    assert (footing.rung, footing.engine.identity.backend) == ("cpu", "torch")
    assert [one.rung for one in footing.refused] == ["tensorrt", "paged", "readable"]
    assert "backend tensorrt needs the package tensorrt: pip install" in footing.refused[0].reason
    assert all(one.reason.startswith("device 'cuda' cannot be used: ") for one in footing.refused[1:])


def test_an_engine_of_a_gpu_that_is_asked_for_is_not_replaced_by_the_cpu() -> None:
    said = "COSYSERVE_TOKEN2WAV_GPU_ENGINE=paged is set and paged cannot serve: device 'cuda' cannot be used"
    with pytest.raises(SettingsError, match=said):
        load_chosen("auto", EngineSettings(model=TINY, device="auto", gpu_engine="paged"))


def test_strict_ends_the_start_with_the_reason() -> None:
    with pytest.raises(
        SettingsError,
        match="COSYSERVE_TOKEN2WAV_STRICT is true and tensorrt cannot serve: backend tensorrt needs the package",
    ):
        load_chosen("auto", EngineSettings(model=TINY, device="auto"), strict=True, auto_first="tensorrt")
