"""A lock between processes that the kernel gives back when its holder dies."""

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
    """Whether it says that this file system has no file locks."""
    return error.errno in _NO_LOCKS


class FileLock:
    """Held inside `with`. The file stays; only who holds its lock counts, and it says who that is.

    purpose: what the holder does, as `engine token2wav.estimator`. on_wait: told once, in words,
    when another process holds it. Threads of one process exclude each other as well: each holds the
    file through its own opening. Blocks; raises OSError.
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
            # a full disk: who waits is told of "another process"
            with contextlib.suppress(OSError):
                os.pwrite(handle, f"{os.getpid()} {time.strftime('%H:%M:%S')}".encode(), 0)
        except BaseException as error:
            os.close(handle)
            if isinstance(error, OSError) and lacks_lock_support(error):
                reason = "this file system has no file locks, which keep two from doing the same; choose a directory on a local disk"
                raise OSError(error.errno, reason, str(self._path.parent)) from error
            raise
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # whoever asks between the next holder's lock and its name is not told ours
            os.ftruncate(self._handle, 0)
        finally:
            os.close(self._handle)

    @staticmethod
    def _holder(handle: int) -> str:
        """Process and since when, as far as its holder has written it."""
        pid, _, since = os.pread(handle, 64, 0).decode(errors="replace").partition(" ")
        return f"process {pid}, at it since {since}," if pid else "another process"
