"""Compiling in parallel, as far as a machine without a GPU can: failures are reported by name, and
directories that are set are used.
"""

from pathlib import Path

import pytest

from services.llm.backends.torch_backend import TorchBackend
from services.llm.settings import LlmSettings
from services.token2wav.decoders.backend import EngineSettings
from tests.gpu import compiling
from tests.gpu.compiling import LOADS, compile_all, directories


def test_directories_that_are_set_stay(tmp_path: Path) -> None:
    made = str(tmp_path)
    assert directories({}, tmp_path) == {"COSYSERVE_CACHE_DIR": made, "TRITON_CACHE_DIR": f"{made}/kernels-of-tests"}
    assert directories({"COSYSERVE_CACHE_DIR": "/kept"}, tmp_path)["TRITON_CACHE_DIR"] == "/kept/kernels-of-tests"
    assert directories({"TRITON_CACHE_DIR": "/kept"}, tmp_path) == {
        "COSYSERVE_CACHE_DIR": made,
        "TRITON_CACHE_DIR": "/kept",
    }


def test_one_that_fails_is_reported_and_stops_no_other() -> None:
    reported: list[str] = []
    assert set(compile_all(reported.append, ["no such engine", "nor this one"])) == {"no such engine", "nor this one"}
    assert [line.split(" engines")[0] for line in reported] == ["kernels: 1 of 2", "kernels: 2 of 2"]
    assert {line.partition(" s, ")[2] for line in reported} == {
        f"{name}: KeyError: '{name}'" for name in ("no such engine", "nor this one")
    }


def test_one_that_takes_too_long_is_given_up() -> None:
    reported: list[str] = []
    assert compile_all(reported.append, ["no such engine"], limit=0.001) == ["no such engine"]
    assert reported[0].endswith("no such engine: not done after 0 s")


def test_one_that_loads_is_reported_by_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []
    monkeypatch.setattr(compiling, "_compiled", lambda name, limit: "")
    assert compile_all(reported.append) == []
    assert len(reported) == len(LOADS)
    assert {line.partition(" s, ")[2] for line in reported} == set(LOADS)


def test_every_engine_is_asked_for_as_the_tests_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, str, str]] = []

    class Loaded:
        async def close(self) -> None:
            asked.append(("", "", "", "closed"))

    def llm(wanted: LlmSettings) -> Loaded:
        assert wanted.model
        asked.append(
            (wanted.model.name, wanted.device, wanted.gpu_precision, f"{wanted.gpu_engine} {wanted.max_sequences}")
        )
        return Loaded()

    def token2wav(name: str, engine: EngineSettings) -> None:
        assert name == "torch"
        assert engine.model
        asked.append(
            (engine.model.name, engine.device, engine.gpu_precision, f"{engine.gpu_engine} {engine.gpu_vocoder}")
        )

    monkeypatch.setattr(TorchBackend, "load", llm)
    monkeypatch.setattr("services.token2wav.loading.load_backend", token2wav)
    for load in LOADS.values():
        load()
    assert len(asked) - asked.count(("", "", "", "closed")) == len(LOADS)
    assert asked.count(("", "", "", "closed")) == 3
    assert {one for one in asked if one[0] == "demo"} == {
        ("demo", "cuda", "bfloat16", "fused 64"),
        ("demo", "cuda", "bfloat16", "paged windowed"),
        ("demo", "cuda", "bfloat16", "paged readable"),
    }
