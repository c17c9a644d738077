"""Driver and GPUs, asked of a stand-in for nvidia-smi; what is said about each kind of machine."""

import json
from pathlib import Path

import pytest

from cosyserve.engines.gpu_facts import Gpu, driver_cuda, gpus, machine_gpus, visible_gpus
from cosyserve.host.doctor.finding import State, ok
from cosyserve.host.doctor.gpu_checks import (
    check_compiler,
    check_cuda,
    check_decode,
    check_driver,
    check_gpu,
    check_gpus,
    check_sharing,
    check_torch_build,
)
from cosyserve.host.hardware import c_compiler, this_machine
from tests.unit.cosyserve.host.fake_gpu import H200, NVIDIA_SMI, gpu, machine, put_program


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    put_program(tmp_path, "nvidia-smi", NVIDIA_SMI)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FAKE_GPUS", json.dumps([H200, {**H200, "memory.total": "[N/A]", "compute_cap": "[N/A]"}]))
    return monkeypatch


def test_what_nvidia_smi_tells(smi: pytest.MonkeyPatch) -> None:
    first, second = gpus()
    assert first == Gpu("NVIDIA H200", (9, 0), "570.86.15", 143771, 143000)
    assert (second.capability, second.memory_mib) == ((0, 0), 0)
    assert driver_cuda() == (12, 8)
    assert visible_gpus()[0] == {"gpu": "NVIDIA H200", "compute_capability": "9.0", "driver": "570.86.15"}
    assert check_driver(this_machine(), wanted=True) == ok("driver", "NVIDIA 570.86.15, 2 GPUs")


@pytest.mark.parametrize(
    ("named", "seen"),
    [
        ("1", ["second"]),
        ("1,0", ["second", "NVIDIA H200"]),
        ("GPU-10f1", ["second"]),
        ("0,7,1", ["NVIDIA H200"]),
        ("", []),
        ("-1", []),
        ("MIG-0f1e", ["NVIDIA H200", "second"]),
    ],
)
def test_what_cuda_does_not_see_is_not_there(named: str, seen: list[str], smi: pytest.MonkeyPatch) -> None:
    smi.setenv("FAKE_GPUS", json.dumps([H200, {**H200, "name": "second"}]))
    smi.setenv("CUDA_VISIBLE_DEVICES", named)
    assert [gpu.name for gpu in gpus()] == [gpu["gpu"] for gpu in visible_gpus()] == seen
    assert [gpu["gpu"] for gpu in machine_gpus()] == ["NVIDIA H200", "second"]
    found = check_driver(this_machine(), wanted=True)
    assert (found.state is State.PROBLEM, "hides every GPU" in found.observed) == (not seen, not seen)


def test_a_driver_that_fails_is_a_problem_in_its_own_words(smi: pytest.MonkeyPatch) -> None:
    smi.setenv("FAKE_GPU_FAILS", "NVML: Driver/library version mismatch")
    found = check_driver(this_machine(), wanted=False)
    assert (found.state, found.observed) == (
        State.PROBLEM,
        "nvidia-smi fails: NVML: Driver/library version mismatch",
    )
    assert "reboot" in found.fix


@pytest.mark.parametrize(
    ("device", "wanted", "state", "fix"),
    [
        (False, False, State.NOTE, "install NVIDIA's driver"),
        (False, True, State.PROBLEM, "install NVIDIA's driver"),
        (True, False, State.NOTE, "with the NVIDIA Container Toolkit"),
    ],
)
def test_no_gpu_is_a_problem_for_who_wants_one(
    device: bool, wanted: bool, state: State, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device without nvidia-smi is a container without the toolkit."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("cosyserve.host.doctor.gpu_checks.has_nvidia_device", lambda: device)
    found = check_driver(machine(), wanted)
    assert (found.state, fix in found.fix, "docker run --gpus all" in found.fix) == (state, True, True)


@pytest.mark.parametrize(
    ("cuda", "runtime", "state"),
    [
        ((12, 8), "12.8.90", State.OK),
        ((12, 4), "12.8.90", State.NOTE),
        ((12, 8), "13.0.48", State.PROBLEM),
        ((13, 0), "12.8.90", State.OK),
        (None, "12.8.90", State.NOTE),
    ],
)
def test_cuda_of_driver_and_torch(cuda: tuple[int, int] | None, runtime: str, state: State) -> None:
    found = check_cuda(machine(gpu(), cuda=cuda, nvidia__cuda__runtime__cu12=runtime))
    assert (found.state, "580" in found.fix) == (state, state is State.PROBLEM)


@pytest.mark.parametrize(
    ("capability", "memory", "free", "states"),
    [
        ((9, 0), 143_771, 143_000, ["ok"]),
        ((7, 5), 16_384, 16_000, ["note"]),
        ((8, 9), 24_564, 10_000, ["ok", "note"]),
        ((8, 9), 1_024, 1_000, ["note"]),
        ((7, 5), 16_384, 2_000, ["note", "note"]),
    ],
)
def test_age_and_memory_of_a_gpu(capability: tuple[int, int], memory: int, free: int, states: list[str]) -> None:
    found = check_gpu(3, gpu(memory, capability, free))
    assert [finding.state for finding in found] == states
    assert all(finding.check.startswith("GPU 3") for finding in found)
    assert all(finding.means and finding.fix for finding in found if finding.state is not State.OK)


def test_a_torch_for_cpus_beside_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    assert check_torch_build(tmp_path).state is State.PROBLEM
    (tmp_path / "lib" / "libtorch_cuda.so").touch()
    assert check_torch_build(tmp_path).state is State.OK


def test_what_engines_need_is_looked_for_where_there_is_a_gpu(tmp_path: Path) -> None:
    def checked(*found: Gpu, torch: Path | None) -> list[str]:
        return [finding.check for finding in check_gpus(machine(*found), torch, {})]

    assert checked(torch=tmp_path) == []
    assert checked(gpu(), torch=None) == ["cuda", "GPU 0", "C compiler", "MPS"]
    assert checked(gpu(), gpu(), torch=tmp_path) == ["cuda", "GPU 0", "GPU 1", "torch build", "C compiler", "MPS"]


def test_compiler_and_mps(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path)}
    assert check_compiler(machine(gpu(), compiler=None)).state is State.NOTE
    assert check_compiler(machine(gpu())).observed == "/usr/bin/gcc"
    assert c_compiler(nothing) is None
    assert check_sharing(machine(gpu()), nothing).state is State.NOTE
    assert check_sharing(machine(gpu(), gpu()), nothing).state is State.OK
    for name in ("gcc", "special", "nvidia-cuda-mps-control"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert str(c_compiler(nothing)).endswith("/gcc")
    assert str(c_compiler({**nothing, "CC": "special"})).endswith("/special")
    assert c_compiler({**nothing, "CC": "nowhere"}) is None
    assert check_sharing(machine(gpu()), nothing).state is State.OK


def test_a_decode_step_of_one_launch_needs_a_gpu_of_its_own() -> None:
    asked = {"COSYSERVE_LLM_GPU_DECODE": "one_launch"}
    assert check_decode(machine(gpu(capability=(9, 0))), {}) == []
    (alone,) = check_decode(machine(gpu(capability=(9, 0))), asked)
    assert (alone.state, "token2wav on this one" in alone.means) == (State.NOTE, True)
    (two,) = check_decode(machine(gpu(capability=(9, 0)), gpu(capability=(9, 0))), asked)
    assert (two.state, "--devices llm=cuda:0" in two.fix) == (State.NOTE, True)
    (old,) = check_decode(machine(gpu(capability=(8, 9))), asked)
    assert (old.state, "8.9" in old.observed) == (State.PROBLEM, True)
    for capability in ((10, 0), (10, 3)):
        assert check_decode(machine(gpu(capability=capability)), asked)[0].state is State.NOTE
    (of_a_desk,) = check_decode(machine(gpu(capability=(9, 0)), gpu(capability=(12, 0))), asked)
    assert (of_a_desk.state, "12.0 has 99" in of_a_desk.means) == (State.PROBLEM, True)
