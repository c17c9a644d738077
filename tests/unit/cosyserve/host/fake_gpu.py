"""Machines with GPUs that no one has, and stand-ins for NVIDIA's programs."""

import sys
from pathlib import Path

from cosyserve.engines.gpu_facts import Gpu
from cosyserve.host.hardware import Machine

NVIDIA_SMI = """
import json, os, sys

if complaint := os.environ.get("FAKE_GPU_FAILS"):
    print(complaint)
    sys.exit(9)
gpus = json.loads(os.environ["FAKE_GPUS"])
query = next((word for word in sys.argv[1:] if word.startswith("--query-gpu=")), None)
if query is None:
    cuda = os.environ.get("FAKE_CUDA", "12.8")
    print("| NVIDIA-SMI 570.86.15   Driver Version: 570.86.15   CUDA Version: " + cuda + " |")
    sys.exit(0)
if "--format=csv,noheader,nounits" not in sys.argv:
    sys.exit("only known without header and units")
for number, gpu in enumerate(gpus):
    told = {"uuid": f"GPU-{number}0f1e2d3c"} | gpu
    print(", ".join(str(told[field]) for field in query.partition("=")[2].split(",")))
"""
"""Lists the GPUs in FAKE_GPUS, or fails as FAKE_GPU_FAILS says."""
MPS_CONTROL = """
import os, signal, subprocess, sys, time
from pathlib import Path

pipes, way = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")), os.environ.get("FAKE_MPS", "starts")
pid_file = pipes / "nvidia-cuda-mps-control.pid"
with Path(os.environ["FAKE_MPS_CALLS"]).open("a") as calls:
    word = " ".join(sys.argv[1:]) or sys.stdin.readline().strip()
    calls.write(word + "|" + os.environ.get("CUDA_VISIBLE_DEVICES", "") + "|" + str(pipes) + "\\n")
if sys.argv[1:] == ["-d"]:
    if way == "refuses":
        sys.exit("Cannot create the control pipe: permission denied")
    if way == "hangs":
        time.sleep(600)
    daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
    pid_file.write_text(str(daemon.pid))
    (pipes / "control").touch()
    sys.exit(0)
try:
    pid = int(pid_file.read_text())
    os.kill(pid, 0)
except (OSError, ValueError):
    sys.exit("Cannot find MPS control daemon process")
if word.startswith("quit"):
    if way == "stubborn":
        time.sleep(600)
    if way == "deaf":
        sys.exit(0)
    os.kill(pid, signal.SIGTERM)
"""
"""A daemon that is a sleeping process, its pid where the real one leaves it. FAKE_MPS says how it
behaves: starts, refuses, hangs, stubborn (does not come back from quit), deaf (does, and lives on).
"""
H200 = {
    "name": "NVIDIA H200",
    "compute_cap": "9.0",
    "driver_version": "570.86.15",
    "memory.total": 143771,
    "memory.free": 143000,
}


def put_program(directory: Path, name: str, text: str) -> None:
    """Lay a program of Python into `directory`, which has to come first in PATH."""
    (directory / name).write_text(f"#!{sys.executable}\n{text}")
    (directory / name).chmod(0o755)


def machine(
    *gpus: Gpu,
    cuda: tuple[int, int] | None = (12, 8),
    cores: float = 8,
    memory: int = 64 << 30,
    compiler: str | None = "/usr/bin/gcc",
    **versions: str,
) -> Machine:
    """A machine that does not exist; versions: of distributions, with __ for -."""
    told = {name.replace("__", "-"): version for name, version in versions.items()}
    return Machine(gpus, cuda, cores, memory, memory, told, compiler)


def gpu(memory_mib: int = 24_564, capability: tuple[int, int] = (8, 9), free_mib: int | None = None) -> Gpu:
    return Gpu("NVIDIA Test", capability, "570.86.15", memory_mib, memory_mib if free_mib is None else free_mib)
