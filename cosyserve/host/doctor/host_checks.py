"""Checks of processor, memory, disk, files, ports, clock and Python of this machine."""

import ctypes
import os
import resource
import shutil
import sys
import time
from pathlib import Path

from cosyserve.errors import SettingsError
from cosyserve.host.doctor.finding import Finding, note, ok, problem
from cosyserve.host.hardware import Machine
from cosyserve.host.supervision.layout import checked_address, free_ports

GIB = 1 << 30
_PROCESSES_BYTES = 2 * GIB
"""Memory of four interpreters, three of them with a tensor library."""
_LEAST_DISK, _GPU_DISK = GIB // 2, 6 * GIB
"""Room for voices and logs; with a GPU also for exported graphs, engines and kernels of the
published sizes.
"""
_LEAST_FILES, _MANY_FILES = 256, 4096
_TIME_ERROR = 5
_TIMEX_BYTES = 208
_PYTHONS = ((3, 11), (3, 13))


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> Finding:
    observed = ".".join(map(str, version))
    if _PYTHONS[0] <= version < _PYTHONS[1]:
        return ok("python", observed)
    return problem("python", observed, "3.11 and 3.12 are supported", "make clean && make setup PYTHON=python3.11")


def check_cores(machine: Machine) -> Finding:
    observed = f"{machine.cores:g} to use"
    if machine.cores >= 2:
        return ok("cores", observed)
    return note(
        "cores",
        observed,
        means="four services share less than two cores: sound will come with gaps",
        fix="give the container more (docker run --cpus 4), or the process (taskset)",
    )


def check_memory(machine: Machine, weights: int) -> Finding:
    """Checks for room for the services and for `weights` twice: in the page cache and in memory."""
    needed = _PROCESSES_BYTES + 2 * weights
    observed = f"{machine.free_memory / GIB:.1f} of {machine.memory / GIB:.1f} GiB free, {needed / GIB:.1f} wanted"
    if machine.free_memory >= needed:
        return ok("memory", observed)
    fix = (
        "end other processes (ps --sort=-rss -eo rss,comm | head), or raise the container's limit (docker run --memory)"
    )
    if machine.memory < needed:
        return problem("memory", observed, "the services will be killed while they load", fix)
    return note("memory", observed, "loading may push other processes out", fix)


def check_disk(directory: Path, has_gpu: bool) -> Finding:
    """directory: of kernels and engines; it need not exist yet."""
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    free, wanted = shutil.disk_usage(existing).free, _GPU_DISK if has_gpu else _LEAST_DISK
    observed = f"{free / GIB:.1f} GiB free in {directory}"
    if not os.access(existing, os.W_OK):
        return note(
            "disk",
            f"{existing} cannot be written",
            means="kernels are compiled again at each start, and engines cannot be built",
            fix="COSYSERVE_CACHE_DIR and XDG_CACHE_HOME name directories that can be",
        )
    if free >= wanted:
        return ok("disk", observed)
    if free < _LEAST_DISK:
        fix = f"cosyserve model prune; du -xh --max-depth=2 {existing} | sort -h | tail"
        return problem("disk", observed, f"{_LEAST_DISK / GIB:g} GiB are the least", fix)
    return note(
        "disk",
        observed,
        f"graphs and engines of the published sizes want {wanted / GIB:g} GiB",
        "cosyserve model prune",
    )


def check_open_files(limit: int | None = None) -> Finding:
    """Each connection, stream and checkpoint is an open file. limit: None: that of this process."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    if files == resource.RLIM_INFINITY:
        return ok("open files", "without limit")
    observed, fix = f"{files} at once", "ulimit -n 65536, or docker run --ulimit nofile=65536"
    if files >= _MANY_FILES:
        return ok("open files", observed)
    if files < _LEAST_FILES:
        return problem("open files", observed, "services fail while they load", fix)
    return note("open files", observed, f"beyond some {files // 8} callers connections are refused", fix)


def check_public_port(listen: str) -> Finding:
    """Checks the public address. Raises SettingsError if `listen` is not host:port."""
    try:
        checked_address(listen)
    except SettingsError as error:
        if "cannot listen" not in str(error):
            raise
        port = listen.rpartition(":")[2]
        fix = f"ss -ltnp 'sport = :{port}' shows which process has it; or cosyserve up --listen 127.0.0.1:0"
        return problem("public port", str(error), "cosyserve up and start refuse to begin", fix)
    return ok("public port", f"{listen} is free")


def check_inner_ports(count: int = 8) -> Finding:
    """Checks the loopback ports between the services."""
    try:
        free_ports(count)
    except OSError as error:
        return problem(
            "inner ports", str(error), "the services cannot reach each other", "ss -ltn | wc -l; end what holds them"
        )
    return ok("inner ports", f"{count} of 20000 to 32000 are free")


def check_clock(newest: Path = Path(__file__), now: float | None = None, synchronised: bool | None = None) -> Finding:
    """newest: a file of ours that cannot be from the future. synchronised: None: as the kernel
    reports.
    """
    seconds = time.time() if now is None else now
    observed = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    if seconds + 60 < newest.stat().st_mtime:
        return problem(
            "clock",
            observed,
            means="it is behind our own files; certificates, voices and traces are judged by it",
            fix="sudo timedatectl set-ntp true",
        )
    held = clock_is_held() if synchronised is None else synchronised
    if held is False:
        return note(
            "clock",
            observed,
            means="nothing keeps it right: traces of several machines will not fit together; "
            "audio does not depend on it",
            fix="sudo timedatectl set-ntp true (on the host, for a container)",
        )
    return ok("clock", observed + ("" if held else "; whether a time service keeps it is unknown"))


def clock_is_held() -> bool | None:
    """Whether a time service keeps the clock of the kernel; None if unknown. Source: adjtimex(2),
    struct timex.
    """
    try:
        # With modes=0 it only reads.
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR
