"""A lock between processes; the kernel releases it when its holder dies."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


def lacks_lock_support(error: OSError) -> bool:
    """Whether the error says that this file system has no file locks."""
    return error.errno in _NO_LOCKS


class FileLock:
    """A lock held inside `with`. The file stays on disk and holds the process id of the holder.

    purpose: what the holder does, such as `engine token2wav.estimator`. on_wait: called once, with
    a message, if another process holds the lock. Threads of one process exclude each other as well,
    because each opens the file itself. Blocks; raises OSError.
    """

    def __init__(self, path: Path, purpose: str, on_wait: Callable[[str], None]) -> None:
        self._path, self._purpose, self._on_wait = path, purpose, on_wait
        self._handle = -1

    def __enter__(self) -> "FileLock":
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._on_wait(f"waiting for {self._holder(handle)} to finish {self._purpose}")
                fcntl.flock(handle, fcntl.LOCK_EX)
            os.ftruncate(handle, 0)
            # On a full disk a waiting process reports "another process".
            with contextlib.suppress(OSError):
                os.pwrite(handle, f"{os.getpid()} {time.strftime('%H:%M:%S')}".encode(), 0)
        except BaseException as error:
            os.close(handle)
            if isinstance(error, OSError) and lacks_lock_support(error):
                reason = (
                    "this file system has no file locks against concurrent work; choose a directory on a local disk"
                )
                raise OSError(error.errno, reason, str(self._path.parent)) from error
            raise
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # Between the lock and the name of the next holder nothing must name this process.
            os.ftruncate(self._handle, 0)
        finally:
            os.close(self._handle)

    @staticmethod
    def _holder(handle: int) -> str:
        """Process id and start time of the holder, if it has written them."""
        pid, _, since = os.pread(handle, 64, 0).decode(errors="replace").partition(" ")
        return f"process {pid}, at it since {since}," if pid else "another process"
