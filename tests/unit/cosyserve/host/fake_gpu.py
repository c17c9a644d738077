"""Stands in for nvidia-smi: tells of the GPUs in FAKE_GPUS, or fails as FAKE_GPU_FAILS says."""

import stat
import sys
from pathlib import Path

from cosyserve.engines.gpu_facts import Gpu
from cosyserve.host.hardware import Machine

_PROGRAM = """#!{python}
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
H200 = {
    "name": "NVIDIA H200",
    "compute_cap": "9.0",
    "driver_version": "570.86.15",
    "memory.total": 143771,
    "memory.free": 143000,
}


def put_program(directory: Path) -> None:
    """Lay the program into `directory`, which has to come first in PATH."""
    program = directory / "nvidia-smi"
    program.write_text(_PROGRAM.replace("{python}", sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def machine(
    *gpus: Gpu,
    cuda: tuple[int, int] | None = (12, 8),
    cores: float = 8,
    memory: int = 64 << 30,
    compiler: str | None = "/usr/bin/gcc",
    **versions: str,
) -> Machine:
    """A machine that nobody has; versions: of distributions, with __ for -."""
    told = {name.replace("__", "-"): version for name, version in versions.items()}
    return Machine(gpus, cuda, cores, memory, memory, told, compiler)


def gpu(memory_mib: int = 24_564, capability: tuple[int, int] = (8, 9), free_mib: int | None = None) -> Gpu:
    return Gpu("NVIDIA Test", capability, "570.86.15", memory_mib, memory_mib if free_mib is None else free_mib)
