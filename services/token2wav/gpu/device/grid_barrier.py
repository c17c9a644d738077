"""Kernels with a grid-wide barrier: all CTAs of a launch must be resident, so one process per GPU
may launch them.

If two processes launched such kernels on one GPU at the same time, each could occupy part of the
multiprocessors and wait forever for the rest. A lock therefore gives them to one of the processes
that share an MPS daemon. Without a daemon processes are time-sliced, and each has the whole GPU in
its slice.
"""

import fcntl
import logging
import os
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_USUAL_PIPES = Path("/tmp/nvidia-mps")  # noqa: S108 - where a daemon of the machine listens
_SHARED = Path("/dev/shm")  # noqa: S108 - clients of one MPS daemon have it in common with the daemon, in containers too
_locks: dict[str, list[int]] = {}
"""File descriptors of this process's locks, by name; the operating system releases them when the
process ends.
"""


def claim_grid_barrier(gpu: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process may launch kernels with a grid barrier on the GPU of this UUID from now
    on. Logs a warning if another process holds the lock, or if that cannot be determined.
    """
    pipes = Path(environ.get(_PIPES) or _USUAL_PIPES)
    try:
        daemon = (pipes / "control").stat().st_ino
    except OSError:
        return True
    name = f"cosyserve-meeting-{gpu}-{daemon}"
    if name in _locks:
        return True
    descriptors = _lock_all(name, (pipes, _SHARED))
    if descriptors is None:
        log.warning(
            "another token2wav has, or may have, programs that wait for each other on this GPU: small batches are "
            "slower here"
        )
        return False
    _locks[name] = descriptors
    return True


def _lock_all(name: str, places: tuple[Path, ...]) -> list[int] | None:
    """Lock a file in each of the directories where one can be created, because a process of another
    user may have access to fewer of them. None if another process holds one of the locks, or if no
    file can be created.
    """
    descriptors: list[int] = []
    for place in places:
        try:
            descriptor = _open(place / name)
        except OSError:
            if os.path.lexists(place / name):  # another user's file without read permission
                break
            continue
        descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            break
    else:
        if descriptors:
            return descriptors
    for descriptor in descriptors:
        os.close(descriptor)
    return None


def _open(path: Path) -> int:
    """A descriptor of an empty file that another user may have created. Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o644)
