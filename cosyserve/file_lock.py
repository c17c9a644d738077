"""Locks between processes (flock); the kernel releases the lock of a process that dies."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MANIFEST = "manifest.json"
"""The file of an engine directory that is written last, and locked while the engine is used."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""Errors of a file system that has no file locks."""


@contextlib.contextmanager
def waiting_lock(path: Path, purpose: str, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the exclusive lock of a file inside `with`. The file stays on disk and holds the process
    id of the holder.

    purpose: what the holder does, such as `engine token2wav.estimator`. on_wait: called once, with
    a message, if another process holds the lock. Threads of one process exclude each other as well,
    because each opens the file itself. Blocks; raises OSError.
    """
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b", buffering=0) as stream:
        handle = stream.fileno()
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait(f"waiting for {_holder(handle)} to finish {purpose}")
                fcntl.flock(handle, fcntl.LOCK_EX)
            os.ftruncate(handle, 0)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            reason = "this file system has no file locks against concurrent work; choose a directory on a local disk"
            raise OSError(error.errno, reason, str(path.parent)) from error
        # On a full disk a waiting process reports "another process".
        with contextlib.suppress(OSError):
            os.pwrite(handle, f"{os.getpid()} {time.strftime('%H:%M:%S')}".encode(), 0)
        try:
            yield
        finally:
            # Between the lock and the name of the next holder nothing must name this process.
            os.ftruncate(handle, 0)


def _holder(handle: int) -> str:
    """Process id and start time of the holder, if it has written them."""
    pid, _, since = os.pread(handle, 64, 0).decode(errors="replace").partition(" ")
    return f"process {pid}, at it since {since}," if pid else "another process"


@contextlib.contextmanager
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
            if error.errno not in _NO_LOCKS:
                raise
        # The process that held the lock may have removed the file that this one had opened before.
        if os.fstat(stream.fileno()).st_ino != path.stat().st_ino:
            raise FileNotFoundError(f"{directory}: removed and replaced by another one")
        yield


@contextlib.contextmanager
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
            if error.errno in _NO_LOCKS:
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
