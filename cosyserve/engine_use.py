"""Who is using an engine: a shared lock on its manifest, which the kernel gives back when its holder dies.

A service holds it as long as it serves an engine; what removes engines takes it alone.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyserve.engine_cache import MANIFEST


@contextmanager
def engine_held(directory: Path) -> Iterator[None]:
    """Hold an engine's directory, together with all who hold it too. Waits while it is being removed; raises FileNotFoundError when it
    is gone then."""
    path = directory / MANIFEST
    with path.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        if os.fstat(stream.fileno()).st_ino != path.stat().st_ino:
            raise FileNotFoundError(f"{directory}: removed, and another one made in its place")
        yield


@contextmanager
def engine_alone(directory: Path) -> Iterator[None]:
    """Have an engine's directory alone. Raises BlockingIOError when somebody holds it."""
    with (directory / MANIFEST).open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def is_locked(path: Path) -> bool:
    """Whether any process has a lock on the file."""
    try:
        with path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


def is_held(directory: Path) -> bool:
    """Whether any process holds the engine."""
    return is_locked(directory / MANIFEST)
