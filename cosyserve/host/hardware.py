"""The hardware and libraries of this machine (in a container, what the container may use), and
which versions of libraries are supported.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cosyserve.engines.gpu_facts import TENSORRT, TRITON_DISTRIBUTIONS, Gpu, driver_cuda, gpus, library_versions

Version = tuple[int, ...]


@dataclass(frozen=True)
class Library:
    """The supported versions of one library."""

    name: str
    distributions: tuple[str, ...]
    """Its distribution names, any of them."""
    oldest: Version
    """First supported version."""
    below: Version | None
    """First unsupported version; None: no upper bound."""
    seen: str
    """Versions with which it has been run, or read against where it could not run."""
    needed: Literal["always", "gpu", "choice"]
    """Always, on a GPU, or for an optional engine."""
    what: str
    """The feature that needs it."""
    install: str
    """Argument of pip install."""

    @property
    def allowed(self) -> str:
        """The supported versions in words."""
        below = f", below {format_version(self.below)}" if self.below else ""
        return f"from {format_version(self.oldest)} on{below}"

    def supports(self, version: str) -> bool:
        """Whether `version` is one of the supported ones."""
        numbers = parse_version(version)
        return numbers[: len(self.oldest)] >= self.oldest and (self.below is None or numbers < self.below)


SUPPORTED_LIBRARIES = (
    Library("torch", ("torch",), (2, 6), None, "2.13 (CPU), 2.11 (H200)", "always", "the engines", "torch==2.13.0"),
    Library("triton", TRITON_DISTRIBUTIONS, (3, 6), None, "3.6 and 3.7", "gpu", "fused LLM, paged flow",
    "triton==3.7.1"),
    Library(
        "tensorrt", TENSORRT, (10, 10), (11,), "types of 10.13", "choice",
        "backend tensorrt of token2wav", "tensorrt-cu13==10.13.3.9",
    ),
    Library(
        "tensorrt_llm", ("tensorrt_llm",), (0, 20), (2,), "sources of 0.20 to 1.4", "choice",
        "backend tensorrt_llm of llm",
        "tensorrt_llm==1.0.0",
    ),
    Library("vllm", ("vllm",), (0, 11), None, "0.32 (CPU), sources of 0.11 to 0.33", "choice", "backend vllm of llm",
    "'vllm>=0.11'"),
    Library(
        "onnxruntime", ("onnxruntime", "onnxruntime-gpu"), (1, 20), None, "1.31", "always",
        "voices of recordings, backend onnxruntime",
        "onnxruntime==1.31.1",
    ),
    Library(
        "pocketsphinx", ("pocketsphinx",), (5, 1, 1), (6,), "5.1.1", "choice", "word times of published models",
        "pocketsphinx==5.1.1",
    ),
    Library("grpcio", ("grpcio",), (1, 71, 2), None, "1.71 and 1.85", "always", "every service", "grpcio==1.85.1"),
    Library("protobuf", ("protobuf",), (5, 29), None, "5.29 and 7.36", "always", "every service", "protobuf==7.36.2"),
)  # fmt: skip


def parse_version(text: str) -> Version:
    """The numbers at the start of a version: "1.0.0rc2+cu128" is (1, 0, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def format_version(version: Version) -> str:
    return ".".join(map(str, version))


LIBRARIES = (
    *(name for library in SUPPORTED_LIBRARIES for name in library.distributions),
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu12",
)
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


def this_machine() -> Machine:
    """Examine this machine; blocks while nvidia-smi runs."""
    found = tuple(gpus())
    memory, free = memory_bytes()
    return Machine(
        found,
        driver_cuda() if found else None,
        usable_cores(),
        memory,
        free,
        library_versions(*LIBRARIES),
        c_compiler(),
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
