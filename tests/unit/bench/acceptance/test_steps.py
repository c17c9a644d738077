"""Which steps there are on a machine, and why some cannot run."""

import shutil
from pathlib import Path

import pytest

from bench.acceptance.steps import Scope, Step, steps
from cosyserve.host.hardware import Machine
from cosyserve.host.starting.configurations import CONFIGURATIONS
from tests.stacks.up_process import DEMO, STEP_AUDIO2, TINY
from tests.unit.cosyserve.host.fake_gpu import gpu, machine

FULL = machine(gpu(), triton="3.7.1", onnxruntime="1.31.1", tensorrt="10.13.0.35", vllm="0.33.0", tensorrt_llm="1.2.0")
CPU = machine(onnxruntime="1.31.1")


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COSYSERVE_CACHE_DIR", str(tmp_path / "cache"))


def of(found: Machine, out: Path, model: Path = DEMO, decoder: Path | None = None) -> dict[str, Step]:
    return {step.part.name: step for step in steps(Scope(model, out, found, decoder=decoder))}


def prevented(found: dict[str, Step]) -> dict[str, str]:
    return {name: step.part.prevented for name, step in found.items() if step.part.prevented}


def test_a_machine_without_a_gpu_names_what_it_cannot_run(tmp_path: Path) -> None:
    without = prevented(of(CPU, tmp_path))
    assert without.pop("reference").endswith("(arrays.json)")
    on_gpu = {f"speak-{each.name}" for each in CONFIGURATIONS if each.on_gpu}
    hosted = {"llm-fused", "llm-tensorrt_llm", "llm-vllm", "sound-paged", "parts-tensorrt", "sound-tensorrt"}
    assert without == dict.fromkeys(on_gpu | hosted, "there is no NVIDIA GPU")


def test_each_library_that_is_installed_is_converted_built_and_compared(tmp_path: Path) -> None:
    found = of(FULL, tmp_path)
    assert list(prevented(found)) == ["reference"]
    order = list(found)
    for first, second in (
        ("convert-tensorrt_llm", "llm-tensorrt_llm"),
        ("convert-vllm", "llm-vllm"),
        ("build-tensorrt", "parts-tensorrt"),
        ("build-tensorrt", "sound-tensorrt"),
    ):
        assert order.index(first) < order.index(second)
        assert first in found[second].part.needs
    assert found["speak-vllm+fp16"].part.needs == ("convert-vllm",)
    (build,) = found["build-tensorrt"].part.commands
    (compare,) = found["parts-tensorrt"].part.commands
    options = build[build.index(str(DEMO)) + 1 :]
    assert "fp16" in options
    # The plans that are compared are those that were built.
    assert compare[compare.index(str(DEMO)) + 1 :][: len(options)] == options


def test_of_a_model_of_two_directories_the_second_is_examined_compared_and_heard(tmp_path: Path) -> None:
    found = of(FULL, tmp_path, TINY, STEP_AUDIO2)
    assert list(prevented(found)) == []
    commands = {name: step.part.commands[0] for name, step in found.items()}
    for name in (
        "inspect-token2wav",
        "reference-token2wav",
        "build-onnxruntime",
        "parts-onnxruntime",
        "build-tensorrt",
    ):
        assert str(STEP_AUDIO2) in commands[name], name
        assert str(TINY) not in commands[name], name
    options = commands["build-tensorrt"][commands["build-tensorrt"].index(str(STEP_AUDIO2)) + 1 :]
    assert (
        commands["parts-tensorrt"][commands["parts-tensorrt"].index(str(STEP_AUDIO2)) + 1 :][: len(options)] == options
    )
    for name in ("doctor", "sound-onnxruntime", "sound-paged", "speak-cpu"):
        place = commands[name].index("--token2wav-model")
        assert (commands[name][place + 1], str(TINY) in commands[name]) == (str(STEP_AUDIO2), True), name
    assert "--token2wav-model" not in of(CPU, tmp_path)["speak-cpu"].part.commands[0]


def test_what_a_library_needs_is_said(tmp_path: Path) -> None:
    without = prevented(of(machine(gpu(), triton="3.7.1"), tmp_path))
    assert without["llm-vllm"].startswith("vllm is not installed: pip install")
    assert "tensorrt is not installed" in without["sound-tensorrt"]


def test_a_model_without_voices_is_not_spoken_with(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(DEMO, model, ignore=shutil.ignore_patterns("spk2info.pt"))
    silent = prevented(of(CPU, tmp_path, model))
    for name in ("speak-cpu", "heard", "load", "sound-onnxruntime"):
        assert silent[name].startswith(f"{model} has no voices (spk2info.pt)")
    made = {step.part.name: step for step in steps(Scope(model, tmp_path, CPU, voices=True))}
    assert {"speak-cpu", "heard", "load"}.isdisjoint(prevented(made))


def test_without_a_recogniser_nothing_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.acceptance.steps.RECOGNISER", ("no_such_recogniser",))
    why = of(CPU, tmp_path)["heard"].part.prevented
    assert why == "no recogniser is installed (no_such_recogniser): pip install 'cosyserve-server[quality]'"


def test_without_what_writes_graphs_none_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.acceptance.steps.GRAPHS", ("no_such_writer",))
    found = of(CPU, tmp_path)
    assert "build-onnxruntime" not in found
    for name in ("parts-onnxruntime", "sound-onnxruntime", "speak-onnx"):
        assert found[name].part.prevented.startswith("no_such_writer is not installed: pip install")
    assert not found["speak-cpu"].part.prevented


def test_a_conversion_that_the_user_names_is_the_one_that_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSYSERVE_LLM_CONVERTED", "/somewhere/llm-hf")
    found = of(FULL, tmp_path)
    assert "convert-vllm" not in found
    assert "/somewhere/llm-hf" in found["llm-vllm"].part.commands[0]
