"""Which GPU and driver this machine has, asked of nvidia-smi: no tensor library is needed to say what an engine is for."""

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROGRAM = "nvidia-smi"
TENSORRT = ("tensorrt", "tensorrt-cu12", "tensorrt-cu13")
"""Distributions that hold it: of any CUDA, and of one."""
_SECONDS = 30
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Gpu:
    """name: as the driver has it. capability: major and minor. memory in MiB, all and free."""

    name: str
    capability: tuple[int, int]
    driver: str
    memory_mib: int
    free_mib: int


def gpus() -> list[Gpu]:
    """Every GPU, in the order of their numbers; none where there is no driver, or none that answers."""
    rows = _asked("name", "compute_cap", "driver_version", "memory.total", "memory.free")
    found = []
    for name, capability, driver, total, free in rows:
        numbers = re.fullmatch(r"(\d+)\.(\d+)", capability)
        # A GPU that is cut into instances, or shares the machine's memory, tells [N/A] of some.
        found.append(Gpu(name, (int(numbers[1]), int(numbers[2])) if numbers else (0, 0), driver, _mib(total), _mib(free)))
    return found


def machine_gpus() -> list[dict[str, str]]:
    """gpu, compute_capability and driver of every GPU, in the order of their numbers; none where there is no driver."""
    rows = _asked("name", "compute_cap", "driver_version")
    return [{"gpu": name, "compute_capability": capability, "driver": driver} for name, capability, driver in rows]


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[dict[str, str]]:
    """The same of those that CUDA shows this process: CUDA_VISIBLE_DEVICES chooses them and their order, as far as it names what is there.

    Numbers are taken as those of nvidia-smi (CUDA_DEVICE_ORDER=PCI_BUS_ID); a slice of a GPU leaves the choice open.
    """
    there, chosen = machine_gpus(), environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or "MIG-" in chosen:
        return there
    ids = [row[0] for row in _asked("uuid")] if "GPU-" in chosen else []
    found = []
    for word in (word.strip() for word in chosen.split(",")):
        number = int(word) if word.isdecimal() else next((at for at, name in enumerate(ids) if word and name.startswith(word)), -1)
        if not 0 <= number < len(there):
            break  # CUDA, too, shows nothing behind what it does not know
        found.append(there[number])
    return found


def driver_version() -> str:
    """Of the driver that is loaded: as its kernel module tells it, else nvidia-smi, all there is under WSL; empty when nobody says."""
    try:
        told = _KERNEL_MODULE.read_text(encoding="utf-8")
    except OSError:
        told = ""
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", told)
    return found[1] if found else next((gpu["driver"] for gpu in machine_gpus()), "")


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the driver runs; None where nobody says."""
    found = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)", _output() or "")
    return (int(found[1]), int(found[2])) if found else None


def driver_complaint() -> str | None:
    """What nvidia-smi says when it is there and fails; None when it works, or is not there."""
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    try:
        told = subprocess.run([program], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = (told.stdout + told.stderr).split("\n")
    return None if told.returncode == 0 else next((line for line in lines if line.strip()), f"exit status {told.returncode}")


def gpu_is_there() -> bool:
    """Whether this machine has an NVIDIA device, with or without what it takes to use it."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def library_versions(*names: str) -> dict[str, str]:
    """Versions of those of the packages that are installed, without importing them."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def tensorrt_version() -> str | None:
    """Of TensorRT, whichever of its distributions is installed; None without."""
    return next(iter(library_versions(*TENSORRT).values()), None)


def _asked(*fields: str) -> list[list[str]]:
    """One row of `fields` for each GPU."""
    told = _output(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    rows = csv.reader((told or "").splitlines(), skipinitialspace=True)
    return [row for row in rows if len(row) == len(fields)]


def _output(*arguments: str) -> str | None:
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    try:
        told = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout if told.returncode == 0 else None


def _mib(text: str) -> int:
    return int(text) if text.isdecimal() else 0
