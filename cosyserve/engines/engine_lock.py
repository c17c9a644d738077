"""File locks (flock) that keep an engine from being removed while a process uses it.

A service holds a shared lock on the engine's manifest while it serves the engine. A process that
removes engines first takes the exclusive lock. The kernel releases the lock of a process that dies.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyserve.engines.engine_cache import MANIFEST
from cosyserve.file_lock import lacks_lock_support


@contextmanager
def shared_engine_lock(directory: Path) -> Iterator[None]:
    """Hold the shared lock of an engine directory inside `with`. Blocks while another process holds
    the exclusive lock.

    Raises FileNotFoundError when the engine is missing, or was removed or replaced while this call
    waited for the lock. On a file system without file locks, such as some network file systems,
    nothing protects the engine and no error is raised.
    """
    path = directory / MANIFEST
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH)
        except OSError as error:
            if not lacks_lock_support(error):
                raise
        # The process that held the lock may have removed the file that this one had opened before.
        if os.fstat(stream.fileno()).st_ino != path.stat().st_ino:
            raise FileNotFoundError(f"{directory}: removed and replaced by another one")
        yield


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of a file inside `with`, without waiting for it. Without the file the
    block runs unlocked.

    Raises BlockingIOError if the file is locked already, shared or exclusively, by another process
    or by this one; another OSError where the file system has no file locks.
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
                raise OSError(error.errno, "no file locks here: whether it is in use is unknown", str(path)) from error
            raise
        yield


def is_locked(path: Path) -> bool:
    """Whether any process, this one included, has a lock on the file; False without the file. The
    check holds the exclusive lock for a moment. Raises OSError where the file system has no file
    locks.
    """
    try:
        with exclusive_lock(path):
            return False
    except BlockingIOError:
        return True
