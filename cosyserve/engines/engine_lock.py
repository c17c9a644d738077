"""Who is using an engine: a shared lock on its manifest, which the kernel gives back when its
holder dies.

A service holds it as long as it serves an engine; what removes engines takes it alone.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyserve.engines.engine_cache import MANIFEST
from cosyserve.file_lock import lacks_lock_support


@contextmanager
def engine_held(directory: Path) -> Iterator[None]:
    """Hold an engine's directory, together with all who hold it too. Waits while it is being
    removed; raises FileNotFoundError when it is gone then. A file system without locks, as some
    that are shared are, is served from all the same."""
    path = directory / MANIFEST
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH)
        except OSError as error:
            if not lacks_lock_support(error):
                raise
        if os.fstat(stream.fileno()).st_ino != path.stat().st_ino:
            raise FileNotFoundError(f"{directory}: removed, and another one made in its place")
        yield


@contextmanager
def locked_alone(path: Path) -> Iterator[None]:
    """Have the lock of a file alone. A file that is not there is nobody's. Raises BlockingIOError
    when somebody holds it.
    """
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        yield
        return
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if lacks_lock_support(error):
                raise OSError(
                    error.errno, "no file locks here: nobody can tell whether it is in use", str(path)
                ) from error
            raise
        yield


def is_locked(path: Path) -> bool:
    """Whether any process has a lock on the file."""
    try:
        with locked_alone(path):
            return False
    except BlockingIOError:
        return True
