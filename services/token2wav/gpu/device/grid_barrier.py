"""Programs of one launch that wait for each other, and who may have them.

They have to be on the GPU all at once. Two processes that had such programs on one GPU at the same
time could each hold half of the other's places and wait for ever; so of those that an MPS daemon
brings together one has them, by a lock. Without a daemon processes take turns, and each has the
whole GPU in its turn.
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
_held: dict[str, list[int]] = {}
"""Descriptors of the locks of this process, by name; they are given back with its end, however it
ends.
"""


def claim_grid_barrier(gpu: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process may have such programs on the GPU of this UUID, from now on. Says so in
    the log when another one has them, or when nobody can tell."""
    pipes = Path(environ.get(_PIPES) or _USUAL_PIPES)
    try:
        daemon = (pipes / "control").stat().st_ino
    except OSError:
        return True
    name = f"cosyserve-meeting-{gpu}-{daemon}"
    if name in _held:
        return True
    taken = _taken(name, (pipes, _SHARED))
    if taken is None:
        log.warning(
            "another token2wav has, or may have, programs that wait for each other on this GPU: small batches are "
            "slower here"
        )
        return False
    _held[name] = taken
    return True


def _taken(name: str, places: tuple[Path, ...]) -> list[int] | None:
    """The lock, in each of the places where a file can be: another user's process may find room in
    fewer of them. None when somebody else has one of these, or there is no such place."""
    taken: list[int] = []
    for place in places:
        try:
            descriptor = _opened(place / name)
        except OSError:
            if os.path.lexists(place / name):  # of a user who shows it to nobody
                break
            continue
        taken.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            break
    else:
        if taken:
            return taken
    for descriptor in taken:
        os.close(descriptor)
    return None


def _opened(path: Path) -> int:
    """A descriptor of an empty file that another user may have made. Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o644)
