"""The candidates of each setting, and the refusal of a machine that lacks them, which is a reason
and never an ImportError.
"""

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cosyserve.engines import benchmark_note as engine_note
from cosyserve.engines.engine_cache import EngineCache, EngineKey
from cosyserve.errors import ModelError, SettingsError
from services.llm.backends.torch_backend import TorchBackend
from services.llm.hosted import installed_libraries
from services.llm.loading import candidates, hosted_first, load_chosen
from tests.unit.llm.hosted.hosts import GPU, library
from tests.unit.llm.tiny_llm import TINY, hops, sentence, settings


def names(**changes: object) -> list[str]:
    wanted = settings(**changes)
    return [name for name, _ in candidates(wanted, hosted_first(wanted))]


OURS = ["fused", "readable", "cpu"]


@pytest.mark.parametrize(
    ("changes", "selected"),
    [
        ({}, OURS),
        ({"device": "cuda"}, OURS[:2]),
        ({"device": "cpu"}, ["cpu"]),
        ({"auto_first": "vllm"}, ["vllm", *OURS]),
        ({"device": "cuda", "auto_first": "tensorrt_llm"}, ["tensorrt_llm", *OURS[:2]]),
        ({"device": "cpu", "auto_first": "vllm"}, ["cpu"]),
        ({"backend": "torch", "auto_first": "vllm"}, OURS),
        ({"backend": "torch"}, OURS),
        ({"backend": "torch", "device": "cuda", "gpu_engine": "fused"}, ["fused"]),
        ({"backend": "torch", "gpu_engine": "readable"}, ["readable", "cpu"]),
        ({"backend": "tensorrt_llm"}, ["tensorrt_llm"]),
        ({"backend": "vllm"}, ["vllm"]),
        ({"backend": "fake"}, ["fake"]),
    ],
)
def test_settings_select_the_candidates(changes: dict[str, str], selected: list[str]) -> None:
    assert names(**{"device": "auto"} | changes) == selected


def test_an_engine_that_was_measured_to_be_faster_here_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_note, "visible_gpus", lambda: [GPU])
    facts = engine_note.facts(engine_note.LLM, TINY, "")
    assert facts["gpu"] == "NVIDIA L4"
    engine_note.write(tmp_path, facts, "vllm", {"compile+fp16": 0.2, "vllm+fp16": 0.1})
    assert names(device="auto", engines=tmp_path) == ["vllm", "fused", "readable", "cpu"]
    assert names(device="auto", engines=tmp_path, auto_first="tensorrt_llm")[0] == "tensorrt_llm"
    monkeypatch.setattr(engine_note, "visible_gpus", lambda: [GPU | {"driver": "580.1"}])
    assert names(device="auto", engines=tmp_path) == ["fused", "readable", "cpu"]
    monkeypatch.setattr(engine_note, "visible_gpus", lambda: [GPU])
    engine_note.write(tmp_path, facts, "", {"compile+fp16": 0.1, "vllm+fp16": 0.2})
    assert names(device="auto", engines=tmp_path) == ["fused", "readable", "cpu"]
    next(tmp_path.glob("fastest-*")).write_text("cut off")
    assert names(device="auto", engines=tmp_path) == ["fused", "readable", "cpu"]


async def test_a_machine_without_a_gpu_ends_on_the_cpu_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_libraries, "visible_gpus", list)
    footing = load_chosen(settings(device="auto", auto_first="vllm"))
    try:
        assert isinstance(footing.engine, TorchBackend)
        assert footing.rung == "cpu"
        assert [(one.rung, one.reason) for one in footing.refused] == [
            ("vllm", "vllm needs an NVIDIA GPU, and nvidia-smi reports none"),
            ("fused", "torch finds no CUDA device"),
            ("readable", "torch finds no CUDA device"),
        ]
        assert (await hops(footing.engine, sentence(1)))[-1].outcome
    finally:
        await footing.engine.close()


@pytest.mark.parametrize("kind", ["tensorrt_llm", "vllm"])
def test_a_missing_library_is_named_with_what_installs_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_libraries, "visible_gpus", lambda: [GPU])
    assert kind not in sys.modules
    with pytest.raises(SettingsError, match=f"the package {kind} is not installed: pip install {kind}"):
        load_chosen(settings(backend=kind, device="auto"))
    with pytest.raises(SettingsError, match="COSYSERVE_LLM_STRICT is true and " + kind + " cannot serve: the package"):
        load_chosen(settings(backend="auto", auto_first=kind, device="auto", strict=True))


@pytest.mark.parametrize("kind", ["tensorrt_llm", "vllm"])
@pytest.mark.parametrize(
    "error", [ImportError("libnvinfer.so.10"), OSError(30, "Read-only file system"), RuntimeError("no MPI")]
)
async def test_a_library_that_cannot_be_imported_is_a_step_down(
    kind: str, error: Exception, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    def broken(name: str) -> ModuleType:
        raise error

    with library(kind, monkeypatch):
        monkeypatch.setattr(installed_libraries.importlib, "import_module", broken)
        wanted = settings(backend=kind, device="auto", converted=converted)
        with pytest.raises(
            SettingsError,
            match=f"the package {kind} cannot be imported: {type(error).__name__}: .*; pip install {kind}",
        ):
            load_chosen(wanted)


@pytest.mark.parametrize(
    ("kind", "version", "has_conversion", "message"),
    [
        ("tensorrt_llm", "0.19.0", True, "the oldest supported is 0.20"),
        ("tensorrt_llm", "0.20.0", True, "before 1.0 serves only built engines"),
        ("tensorrt_llm", "1.4.0rc1", False, "from 1.3 on runs no built engine"),
        ("tensorrt_llm", "1.1.0", False, "no engine is built for it and COSYSERVE_LLM_CONVERTED is not set"),
        ("vllm", "0.9.2", True, "the oldest supported is 0.11"),
        ("vllm", "0.19.0", False, "cosyserve model convert MODEL --target vllm"),
    ],
)
def test_what_a_release_cannot_serve_is_said(
    kind: str,
    version: str,
    has_conversion: bool,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    given = request.getfixturevalue("converted") if has_conversion else None
    with library(kind, monkeypatch, version), pytest.raises(SettingsError, match=message):
        load_chosen(settings(backend=kind, device="auto", converted=given, engines=tmp_path))


def test_a_conversion_of_another_model_is_refused(
    monkeypatch: pytest.MonkeyPatch, converted: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(converted, tmp_path / "other"))
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["identity"]["source"] = "0123456789abcdef"
    (other / "manifest.json").write_text(json.dumps(manifest))
    with library("vllm", monkeypatch), pytest.raises(ModelError, match="was made of model 0123456789abcdef, this is"):
        load_chosen(settings(backend="vllm", device="auto", converted=other))
    with library("vllm", monkeypatch), pytest.raises(ModelError, match="no conversion of ours"):
        load_chosen(settings(backend="vllm", device="auto", converted=tmp_path))


async def test_a_built_engine_of_this_machine_is_found_and_another_is_not(
    monkeypatch: pytest.MonkeyPatch, converted: Path, tmp_path: Path
) -> None:
    from services.llm.hosted import trtllm_backend

    versions = {"tensorrt_llm": "1.1.0", "tensorrt": "10.13"}
    model = json.loads((converted / "manifest.json").read_text())["identity"]["source"]
    cache = EngineCache(tmp_path)
    profile = "sentences 8, positions 4096, tokens 8192"
    good = EngineKey("llm.engine", GPU | versions | {"model": model, "precision": "bfloat16", "profile": profile})
    cache.obtain(
        EngineKey("llm.engine", {**good.facts, "driver": "1"}),
        lambda at: (at / "rank0.engine").write_bytes(b"1") and None,
    )
    monkeypatch.setattr(trtllm_backend, "visible_gpus", lambda: [GPU])
    monkeypatch.setattr(trtllm_backend, "library_versions", lambda *names: versions)
    with pytest.raises(SettingsError, match=r"driver is 570\.86, it was built for 1"):
        trtllm_backend.built_engine(settings(engines=tmp_path), model)
    cache.obtain(good, lambda at: (at / "rank0.engine").write_bytes(b"2") and None)
    fits = settings(engines=tmp_path, max_sequences=8, max_positions=4096)
    assert trtllm_backend.built_engine(fits, model).key == good
    with pytest.raises(
        SettingsError, match=r"MAX_SEQUENCES is 9, it was built for 8; COSYSERVE_LLM_MAX_POSITIONS is 4097, .* 4096"
    ):
        trtllm_backend.built_engine(settings(engines=tmp_path, max_sequences=9, max_positions=4097), model)
