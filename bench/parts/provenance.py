"""What figures belong to: the machine, the versions and the source. Figures of another subject are
not continued.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("bench", "cosyserve", "protos", "services")
PACKAGES = ("torch", "triton", "numpy", "grpcio", "onnxruntime")


@dataclass(frozen=True)
class Subject:
    """source: hash over the code that runs. commit: its name in git, empty outside of a repository;
    two commits with the same source are one subject."""

    machine: str
    versions: dict[str, str]
    source: str
    commit: str

    def same(self, other: object) -> bool:
        return isinstance(other, Subject) and (self.machine, self.versions, self.source) == (
            other.machine,
            other.versions,
            other.source,
        )

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.machine}; {versions}; source {self.source}{f' (commit {self.commit})' if self.commit else ''}"


def subject() -> Subject:
    """Of this process's machine and this tree."""
    return Subject(machine(), versions(), source(ROOT), commit(ROOT))


def gpu(*fields: str) -> list[list[str]]:
    """What nvidia-smi reports of each GPU, no units; nothing without one."""
    if shutil.which("nvidia-smi") is None:
        return []
    done = subprocess.run(
        ("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"),
        capture_output=True,
        text=True,
        check=False,
    )
    return (
        [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines()]
        if done.returncode == 0
        else []
    )


def machine() -> str:
    """The GPUs if there are any, and the processor with the number of cores that this process may
    use.
    """
    names = [name for (name,) in gpu("name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return ", ".join([*names, f"{processor()}, {cores} cores"])


def processor() -> str:
    """Its name, or its architecture where the system does not say it."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return re.sub(r"\s+", " ", match[1]).strip() if match else platform.machine()


def versions() -> dict[str, str]:
    versions_by_name = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions_by_name[package] = version(package)
        except PackageNotFoundError:
            continue
    drivers = gpu("driver_version")
    return versions_by_name | ({"driver": drivers[0][0]} if drivers else {})


def source(root: Path, folders: Sequence[str] = SOURCES) -> str:
    """Twelve hexadecimal digits over all code of these folders of `root`, which a measurement
    runs.
    """
    digest = hashlib.sha256()
    for path in sorted(
        path for part in folders for kind in ("py", "proto") for path in (root / part).rglob(f"*.{kind}")
    ):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def commit(root: Path) -> str:
    """Short name, with a + when files differ from it; empty where there is no repository."""
    try:
        done = subprocess.run(
            ("git", "describe", "--always", "--dirty=+", "--abbrev=10"),
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
