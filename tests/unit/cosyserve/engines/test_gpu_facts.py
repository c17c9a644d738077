"""The driver's version, from the first source that has it."""

import os
from pathlib import Path

import pytest

from cosyserve.engines import gpu_facts

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
    (machine / "nvidia-smi").write_text("#!/bin/sh\necho 566.36\n")
    (machine / "nvidia-smi").chmod(0o755)
    assert gpu_facts.driver_version() == "566.36"
