"""The candidates of each setting, and the refusal of a machine that lacks them, which is a reason
and never an ImportError. Loading of the fake libraries in a container and on a shared GPU, and an
engine that dies while it is idle.
"""

import asyncio
import importlib
import json
import os
import shutil
import sys
import threading
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

from cosyserve.engines import benchmark_note as engine_note
from cosyserve.engines.engine_cache import EngineCache, EngineKey
from cosyserve.engines.gpu_facts import Gpu
from cosyserve.errors import ModelError, SettingsError
from services.llm.backends.torch_backend import TorchBackend
from services.llm.hosted import installed_libraries, trtllm_backend
from services.llm.hosted.vllm import vllm_backend
from services.llm.loading import candidates, hosted_first, load_chosen
from tests.unit.llm.hosted import fake_tensorrt_llm, fake_vllm
from tests.unit.llm.hosted.hosts import GPU, host, hosted, library, load
from tests.unit.llm.tiny_llm import TINY, hops, sentence, settings, tokens


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
        ({"gpu_engine": "fused"}, ["fused"]),
        ({"gpu_engine": "fused", "auto_first": "vllm"}, ["vllm", "fused"]),
        ({"gpu_engine": "fused", "device": "cpu"}, ["cpu"]),
        ({"gpu_decode": "one_launch", "auto_first": "vllm"}, ["fused"]),
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
    with monkeypatch.context() as patch:
        patch.setattr(engine_note, "visible_gpus", lambda: [GPU | {"driver": "580.1"}])
        assert names(device="auto", engines=tmp_path) == OURS
    engine_note.write(tmp_path, facts, "", {"compile+fp16": 0.1, "vllm+fp16": 0.2})
    assert names(device="auto", engines=tmp_path) == OURS
    next(tmp_path.glob("fastest-*")).write_text("cut off")
    assert names(device="auto", engines=tmp_path) == OURS


async def test_a_machine_without_a_gpu_ends_on_the_cpu_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_libraries, "visible_gpus", list)
    footing = load_chosen(settings(device="auto", auto_first="vllm"))
    try:
        assert (type(footing.engine), footing.rung) == (TorchBackend, "cpu")
        assert [(one.rung, one.reason) for one in footing.refused] == [
            ("vllm", "vllm needs an NVIDIA GPU, and nvidia-smi reports none"),
            ("fused", "torch finds no CUDA device"),
            ("readable", "torch finds no CUDA device"),
        ]
        assert (await hops(footing.engine, sentence(1)))[-1].outcome
    finally:
        await footing.engine.close()


def test_an_engine_of_a_gpu_that_is_asked_for_is_not_replaced_by_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SettingsError, match="COSYSERVE_LLM_GPU_ENGINE=fused is set and fused cannot serve: torch find"):
        load_chosen(settings(device="auto", gpu_engine="fused"))
    with pytest.raises(SettingsError, match="gpu_engine=fused needs a CUDA device"):
        TorchBackend.load(settings(device="auto", gpu_engine="fused"))


@pytest.mark.parametrize("kind", ["tensorrt_llm", "vllm"])
def test_a_missing_library_is_named_with_what_installs_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_libraries, "visible_gpus", lambda: [GPU])
    assert kind not in sys.modules
    for how, words in (
        ({"backend": kind}, f"the package {kind} is not installed: pip install {kind}"),
        ({"auto_first": kind, "strict": True}, f"COSYSERVE_LLM_STRICT is true and {kind} cannot serve: the package"),
    ):
        with pytest.raises(SettingsError, match=words):
            load_chosen(settings(**{"backend": "auto", "device": "auto"} | how))


@pytest.mark.parametrize("kind", ["tensorrt_llm", "vllm"])
@pytest.mark.parametrize(
    "error", [ImportError("libnvinfer.so.10"), OSError(30, "Read-only file system"), RuntimeError("no MPI")]
)
async def test_a_library_that_cannot_be_imported_is_a_step_down(
    kind: str, error: Exception, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    words = f"the package {kind} cannot be imported: {type(error).__name__}: .*; pip install {kind}"
    with library(kind, monkeypatch):
        monkeypatch.setattr(installed_libraries.importlib, "import_module", Mock(side_effect=error))
        with pytest.raises(SettingsError, match=words):
            load_chosen(settings(backend=kind, device="auto", converted=converted))


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
    for given, words in (
        (other, "was made of model 0123456789abcdef, this is"), (tmp_path, "no conversion of ours")
    ):  # fmt: skip
        with library("vllm", monkeypatch), pytest.raises(ModelError, match=words):
            load_chosen(settings(backend="vllm", device="auto", converted=given))


async def test_a_built_engine_of_this_machine_is_found_and_another_is_not(
    monkeypatch: pytest.MonkeyPatch, converted: Path, tmp_path: Path
) -> None:
    versions = {"tensorrt_llm": "1.1.0", "tensorrt": "10.13"}
    model = json.loads((converted / "manifest.json").read_text())["identity"]["source"]
    profile = "sentences 8, positions 4096, tokens 8192"
    good = EngineKey("llm.engine", GPU | versions | {"model": model, "precision": "bfloat16", "profile": profile})

    def build(key: EngineKey) -> None:
        EngineCache(tmp_path).obtain(key, lambda at: (at / "rank0.engine").write_bytes(b"1") and None)

    build(EngineKey("llm.engine", {**good.facts, "driver": "1"}))
    monkeypatch.setattr(trtllm_backend, "visible_gpus", lambda: [GPU])
    monkeypatch.setattr(trtllm_backend, "library_versions", lambda *names: versions)
    with pytest.raises(SettingsError, match=r"driver is 570\.86, it was built for 1"):
        trtllm_backend.built_engine(settings(engines=tmp_path), model)
    build(good)
    fits = settings(engines=tmp_path, max_sequences=8, max_positions=4096)
    assert trtllm_backend.built_engine(fits, model).key == good
    with pytest.raises(
        SettingsError, match=r"MAX_SEQUENCES is 9, it was built for 8; COSYSERVE_LLM_MAX_POSITIONS is 4097, .* 4096"
    ):
        trtllm_backend.built_engine(settings(engines=tmp_path, max_sequences=9, max_positions=4097), model)


@pytest.mark.parametrize("chosen", [None, "0"])
async def test_tensorrt_llm_runs_in_this_process_unless_the_user_wants_another(
    chosen: str | None, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    """The variable is there before the library is imported: it is read once."""
    at_import: list[str | None] = []
    import_module = importlib.import_module

    def watched(name: str, package: str | None = None) -> ModuleType:
        if name == "tensorrt_llm":
            at_import.append(os.environ.get(trtllm_backend.SINGLE_PROCESS))
        return import_module(name, package)

    with library("tensorrt_llm", monkeypatch):
        if chosen is None:
            monkeypatch.delenv(trtllm_backend.SINGLE_PROCESS)
        else:
            monkeypatch.setenv(trtllm_backend.SINGLE_PROCESS, chosen)
        monkeypatch.setattr(installed_libraries.importlib, "import_module", watched)
        backend = load("tensorrt_llm", converted)
        try:
            assert at_import == [chosen or "1"]
            assert host(backend).in_process is (chosen is None)
            assert await tokens(backend, sentence(1))
        finally:
            await backend.close()


async def test_a_load_that_waits_for_a_process_that_never_comes_is_stepped_over(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    over = threading.Event()
    monkeypatch.setattr(fake_tensorrt_llm.LLM, "spawn_fails", over)
    with library("tensorrt_llm", monkeypatch, own_process="0"):
        wanted = settings(backend="tensorrt_llm", device="auto", converted=converted, load_seconds=0.5)
        try:
            with pytest.raises(
                SettingsError, match=r"^tensorrt_llm did not load in 0\.5 s, the limit that LOAD_SECONDS sets$"
            ):
                load_chosen(wanted)
        finally:
            over.set()


async def test_vllm_starts_next_to_another_engine_on_the_same_gpu(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    """20 of 24 GiB are free, and the library by itself asks for 0.92 of all."""
    monkeypatch.setattr(fake_vllm, "memory", fake_vllm.Memory(free=20 << 30))
    async with hosted("vllm", monkeypatch, converted) as backend:
        assert host(backend).arguments.gpu_memory_utilization == pytest.approx((4 + 2) / 24, abs=0.001)
        assert await tokens(backend, sentence(1))


async def test_vllm_that_has_no_room_is_refused_before_it_fills_the_gpu(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    monkeypatch.setattr(fake_vllm, "memory", fake_vllm.Memory(free=5 << 30))
    with library("vllm", monkeypatch), pytest.raises(Exception, match="Free memory on device cuda:0"):
        load("vllm", converted)


@pytest.mark.parametrize(
    ("memory_mib", "kv_gib", "share"),
    [(0, 4, 0.05), (None, 4, 0.05), (24 << 10, 4, 0.25), (4 << 10, 4, 0.92), (1 << 20, 1, 0.01)],
)
def test_the_share_of_the_gpu_that_is_asked_for(
    memory_mib: int | None, kv_gib: int, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visible = [] if memory_mib is None else [Gpu("GPU", (8, 9), "1", memory_mib, memory_mib)]
    monkeypatch.setattr(vllm_backend, "gpus", lambda: visible)
    assert vllm_backend.gpu_share(tmp_path, kv_gib << 30) == pytest.approx(share, abs=0.001)


async def test_an_engine_that_is_shut_down_is_no_fault(monkeypatch: pytest.MonkeyPatch, converted: Path) -> None:
    faults: list[str] = []
    monkeypatch.setattr(fake_vllm.AsyncLLM, "with_core", True)
    async with hosted("vllm", monkeypatch, converted, on_fault=faults.append) as backend:
        await backend.warm_up()
    await asyncio.sleep(0.1)
    assert faults == []


def test_a_library_without_a_distribution_of_its_name_is_asked_itself(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    wanted = settings(backend="vllm", device="auto", converted=converted)
    for version, refusal in (("0.9.1", "vllm 0.9 is installed, the oldest supported is 0.11"), ("0.33.0", "")):
        with library("vllm", monkeypatch, version):
            monkeypatch.setattr(installed_libraries, "library_versions", lambda *names: {})
            assert installed_libraries.vllm_refusal(wanted).startswith(refusal)
            assert bool(installed_libraries.vllm_refusal(wanted)) == bool(refusal)
