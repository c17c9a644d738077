"""`cosyserve doctor` as a process, on machines that are made up."""

import json
import os
import subprocess
from pathlib import Path

from tests.stacks.up_process import ROOT, run_cosyserve
from tests.unit.cosyserve.host.fake_gpu import H200, NVIDIA_SMI, put_program

CHECKS = {
    "driver",
    "python",
    "library torch",
    "library vllm",
    "model",
    "cores",
    "memory",
    "disk",
    "open files",
    "public port",
    "clock",
}


def doctor(*options: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return run_cosyserve("doctor", "--listen", "127.0.0.1:0", *options, **environ)


def test_a_cpu_serves_and_is_told_so_without_a_tensor_library(tmp_path: Path) -> None:
    """A torch that ends the process is found first; the disk is that of the cache directory."""
    shadow = tmp_path / "torch"
    shadow.mkdir()
    (shadow / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    cache = str(tmp_path / "cache")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    done = doctor("--json", PATH=str(tmp_path), PYTHONPATH=path, COSYSERVE_CACHE_DIR=cache)
    told = json.loads(done.stdout)
    assert done.returncode == (0 if told["healthy"] else 1), done.stderr
    assert told["recommendation"]["environ"]["COSYSERVE_LLM_DEVICE"] == "cpu"
    findings = {finding["check"]: finding for finding in told["findings"]}
    assert findings.keys() >= CHECKS
    assert all(finding["means"] for finding in told["findings"] if finding["state"] != "ok")
    assert cache in findings["disk"]["found"]


def test_a_data_centre_gpu(tmp_path: Path) -> None:
    put_program(tmp_path, "nvidia-smi", NVIDIA_SMI)
    told = json.loads(doctor("--json", PATH=str(tmp_path), FAKE_GPUS=json.dumps([H200])).stdout)
    assert told["machine"]["gpus"][0]["name"] == "NVIDIA H200"
    assert told["recommendation"]["tier"].startswith("data-centre")
    assert {"GPU 0", "cuda", "C compiler", "MPS"} <= {finding["check"] for finding in told["findings"]}


def test_problems_are_the_exit_status_and_come_with_a_remedy(tmp_path: Path) -> None:
    done = doctor("--gpu", "--model", str(tmp_path / "nowhere"), PATH=str(tmp_path))
    assert done.returncode == 1
    assert "PROBLEM driver" in done.stdout
    assert "no such model directory" in done.stdout
    assert f"fix: cosyserve model download {tmp_path / 'nowhere'}" in done.stdout
    assert "COSYSERVE_TOKEN2WAV_DEVICE=cpu" in done.stdout


def test_a_malformed_address_is_wrong_usage(tmp_path: Path) -> None:
    done = doctor("--listen", "everywhere", PATH=str(tmp_path))
    assert (done.returncode, "is not an address" in done.stderr) == (2, True)
