"""`cosyserve start --test-all` with the bundled voice on a GPU: every configuration that this
machine has is measured, and none fails.
"""

import importlib.util
import subprocess
from pathlib import Path

import pytest
import torch

from cosyserve.host.hardware import this_machine
from cosyserve.host.starting.configurations import CONFIGURATIONS
from tests.gpu.compiling import ROOT, environment
from tests.stacks.up_process import run_cosyserve

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.usefixtures("kernels"),
]
POOL = {"COSYSERVE_TOKEN2WAV_STATE_BYTES": str(1 << 30), "COSYSERVE_TOKEN2WAV_PROMPT_CACHE_BYTES": str(1 << 28)}
"""What these tests' own process has of the memory is not there for the services."""
RATINGS = ("fast", "acceptable", "slow")


def cosyserve(tmp_path: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environ = environment(COSYSERVE_TOKEN2WAV_ENGINES=str(tmp_path / "engines"), **POOL)
    return run_cosyserve(*words, seconds=240, **environ)


def test_every_configuration_that_runs_here_is_measured(tmp_path: Path) -> None:
    machine, wanted = this_machine(), ["compile+fp16", "fp16", "cpu"]
    if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
        exported = cosyserve(
            tmp_path, "model", "export", str(ROOT / "models" / "demo"), "--engines", str(tmp_path / "engines")
        )
        assert exported.returncode == 0, exported.stderr
        wanted.append("onnx")
    assert set(wanted) <= {one.name for one in CONFIGURATIONS if one.lacks(machine) is None}
    done = cosyserve(tmp_path, "start", "--test-all", "--no-serve", "--listen", "127.0.0.1:0")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    rows = {line.split()[0]: line for line in lines if line.split() and line.split()[-1] in RATINGS}
    assert set(wanted) <= set(rows), [line for line in lines if "not run" in line]
    assert any(line.startswith("configuration ") and line.split()[1].rstrip(":") in wanted for line in lines)
    for one in CONFIGURATIONS:
        if (reason := one.lacks(machine)) is not None:
            assert f"{one.name} cannot run here: {reason}" in lines
