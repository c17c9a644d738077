"""The driver's version, from whoever tells it, and which GPUs a process is shown."""

import os
from pathlib import Path

import pytest

from cosyserve import gpu_facts

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 1\nGCC version: gcc version 12.2.0\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `version` is the kernel's word, and whose programs alone are there."""
    monkeypatch.setattr(gpu_facts, "_KERNEL_MODULE", tmp_path / "version")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    return tmp_path


@pytest.mark.parametrize(("told", "version"), [(CLOSED, "570.86.15"), (OPEN, "580.65.06"), ("GCC version 12.3.0", "")])
def test_the_kernel_module_tells_its_version(machine: Path, told: str, version: str) -> None:
    (machine / "version").write_text(told)
    assert gpu_facts.driver_version() == version


def test_without_a_word_of_the_kernel_nvidia_smi_is_asked(machine: Path) -> None:
    assert gpu_facts.driver_version() == ""
    (machine / "nvidia-smi").write_text('#!/bin/sh\necho "NVIDIA L4, 8.9, 566.36"\n')
    (machine / "nvidia-smi").chmod(0o755)
    assert gpu_facts.driver_version() == "566.36"


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (None, ["H200", "L20", "L4"]),
        ("", []),
        ("1", ["L20"]),
        ("2, 0", ["L4", "H200"]),
        ("GPU-bbb", ["L20"]),
        ("0,7,1", ["H200"]),
        ("-1", []),
        ("MIG-123", ["H200", "L20", "L4"]),
    ],
)
def test_cuda_shows_those_that_are_chosen(machine: Path, chosen: str | None, names: list[str]) -> None:
    uuids, facts = "GPU-aaa\\nGPU-bbb-1\\nGPU-ccc\\n", "H200, 9.0, 1\\nL20, 8.9, 1\\nL4, 8.9, 1\\n"
    (machine / "nvidia-smi").write_text(f'#!/bin/sh\ncase "$1" in *uuid*) printf "{uuids}";; *) printf "{facts}";; esac\n')
    (machine / "nvidia-smi").chmod(0o755)
    shown = gpu_facts.visible_gpus({} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen})
    assert [gpu["gpu"] for gpu in shown] == names
    assert [gpu["gpu"] for gpu in gpu_facts.machine_gpus()] == ["H200", "L20", "L4"]
