"""GPUs, cores and memory of this machine; in a container, what the container may use."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cosyserve.engines.gpu_facts import TENSORRT, Gpu, driver_cuda, gpus, library_versions

LIBRARIES = (
    "torch", "triton", "pytorch-triton", *TENSORRT, "tensorrt_llm", "vllm", "onnxruntime",
    "onnxruntime-gpu", "grpcio", "protobuf", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12",
)  # fmt: skip
"""Distributions whose versions matter."""
_GROUP = Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True)
class Machine:
    """The hardware and libraries of a machine."""

    gpus: tuple[Gpu, ...]
    """By number."""
    cuda: tuple[int, int] | None
    """Newest CUDA version of the driver."""
    cores: float
    """Cores that this process may use; may be a fraction."""
    memory: int
    """Bytes."""
    free_memory: int
    """Bytes."""
    versions: dict[str, str]
    """Versions of those of LIBRARIES that are installed."""
    compiler: str | None
    """Path of the C compiler."""

    @property
    def gpu(self) -> Gpu | None:
        """The GPU that services use by default."""
        return self.gpus[0] if self.gpus else None

    def version(self, *names: str) -> str | None:
        """Version of the first of the distributions that is installed."""
        return next((self.versions[name] for name in names if name in self.versions), None)


def this_machine(versions: Callable[..., dict[str, str]] = library_versions) -> Machine:
    """Examine this machine; blocks while nvidia-smi runs."""
    found = tuple(gpus())
    memory, free = memory_bytes()
    return Machine(
        found, driver_cuda() if found else None, usable_cores(), memory, free, versions(*LIBRARIES), c_compiler()
    )


def c_compiler(environ: Mapping[str, str] = os.environ) -> str | None:
    """The compiler that Triton would use for its launchers: CC, or the first installed one of
    three.
    """
    wanted = environ.get("CC")
    found = (shutil.which(name, path=environ.get("PATH")) for name in ((wanted,) if wanted else ("gcc", "clang", "cc")))
    return next((path for path in found if path), None)


def usable_cores(group: Path = _GROUP) -> float:
    """Cores that this process may use: its affinity, or the share of the container if that
    is less.
    """
    cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return cores if quota == "max" else min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        return cores


def memory_bytes(group: Path = _GROUP, meminfo: Path = _MEMORY) -> tuple[int, int]:
    """Memory in bytes, all and free: of the machine, or the limit of the container if that
    is less.
    """
    values = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    total, free = (int(values[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    try:
        limit, used = int((group / "memory.max").read_text()), int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return total, free
    return min(total, limit), min(free, max(0, limit - used))
