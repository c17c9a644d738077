"""Marks an engine as used: a shared lock on its manifest, which the kernel releases when its holder
dies.

A service holds the lock while it serves the engine; a process that removes engines takes it
exclusively.
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
    """Hold the shared lock of an engine directory. Waits while it is being removed; raises
    FileNotFoundError if it is gone then. On a file system without locks, such as some shared ones,
    it does nothing.
    """
    path = directory / MANIFEST
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH)
        except OSError as error:
            if not lacks_lock_support(error):
                raise
        if os.fstat(stream.fileno()).st_ino != path.stat().st_ino:
            raise FileNotFoundError(f"{directory}: removed and replaced by another one")
        yield


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of a file; does nothing without the file. Raises BlockingIOError if
    another process holds the lock.
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
    """Whether any process has a lock on the file."""
    try:
        with exclusive_lock(path):
            return False
    except BlockingIOError:
        return True
