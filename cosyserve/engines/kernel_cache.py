"""Compiled GPU kernels: whether they can be compiled here, and the directory in which they are kept
between starts, one for each kind of GPU, driver and compiler. Services, benches and tests use the
same one. Which kernels a start compiled, and which the cache had, is a line of the log.

Triton names each kernel by its source, the values that are compiled into it and its compiler,
writes it next to its final path and renames it, so that two processes may share a directory and
never see a partial file. The key here has what that name lacks; weights are no part of either. The
files refer to each other by absolute paths: a directory that is
moved, or mounted elsewhere, is compiled again.
"""

import atexit
import collections
import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cosyserve.engines.gpu_facts import TRITON_DISTRIBUTIONS, driver_version, library_versions
from cosyserve.errors import SettingsError
from cosyserve.settings import CACHE_DIRECTORY, cache_directory

log = logging.getLogger(__name__)
TRITON = "TRITON_CACHE_DIR"
UNUSED_DAYS = 30
"""A start deletes directories that no start has used for so many days."""
log = logging.getLogger(__name__)
_NAMED = 8
"""Names of compiled kernels in the line."""


class Unsuitable(SettingsError):
    """An engine of compiled kernels cannot run on this GPU, with this installation, or for this
    model and these limits; the readable engine of the service can.
    """


@contextlib.contextmanager
def kernels_compile(needs: str, kernels: str, instead: str) -> Iterator[None]:
    """Context in which kernels are imported and compiled. Raises Unsuitable where Triton is missing
    or too old, finds no C compiler for its launchers, or a kernel needs more resources than a
    multiprocessor of this GPU has; other errors are not changed. How many kernels were compiled and
    how many the cache had is logged (`counted_kernels`).

    The arguments are parts of the messages: that the engine `needs` something, the name of its
    `kernels`, and what can be done `instead`.
    """
    try:
        with counted_kernels(kernels):
            yield
    except ImportError as error:
        raise Unsuitable(f"{needs} Triton 3.6 or later ({error}); {instead}") from error
    except Exception as error:
        if not _about_compiling(error):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise Unsuitable(f"{kernels} cannot be compiled here ({reason}); {instead}") from error


def _about_compiling(error: Exception) -> bool:
    from triton.errors import TritonError

    return isinstance(error, (TritonError, subprocess.CalledProcessError)) or "C compiler" in str(error)


def triton_version() -> str:
    """Version of the installed Triton, which may have another distribution name; empty if there is
    none.
    """
    return next(iter(library_versions(*TRITON_DISTRIBUTIONS).values()), "")


@dataclass(frozen=True, kw_only=True)
class Key:
    """What compiled kernels depend on."""

    gpu: str
    """Name of the GPU."""
    capability: tuple[int, int]
    """Compute capability: major and minor."""
    torch: str = field(default_factory=lambda: library_versions("torch").get("torch", ""))
    triton: str = field(default_factory=triton_version)
    driver: str = field(default_factory=driver_version)

    @property
    def directory(self) -> str:
        """Name of the directory: the GPU in readable form, and a hash of the key."""
        readable = re.sub(r"[^a-z0-9]+", "-", self.gpu.lower()).strip("-")[:40]
        return f"{readable}-{hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]}"


def keep_kernels(key: Key, environ: MutableMapping[str, str] = os.environ) -> Path:
    """Have Triton keep its kernels under COSYSERVE_CACHE_DIR (else `cosyserve` in the user's cache
    directory), and return the directory.

    Call it before the first kernel is compiled. No other setting counts: a TRITON_CACHE_DIR that is
    set is for the kernels of other libraries in other processes, and is replaced in `environ`. If
    the directory cannot be used, or other users could write it, this logs a warning and uses a
    temporary directory. The parents of `kernels` in a COSYSERVE_CACHE_DIR are not checked. Blocks
    for file operations.
    """
    ours = cache_directory(environ)
    root = ours / "kernels"
    directory = root / key.directory
    try:
        ours.mkdir(mode=0o700, parents=True, exist_ok=True)
        for private in (root, directory) if environ.get(CACHE_DIRECTORY) else (ours, root, directory):
            private.mkdir(mode=0o700, exist_ok=True)
            _check(private)
        _describe(directory, key)
        os.utime(directory)
        _prune(root, directory)
        log.info("compiled kernels are kept in %s", directory)
    except OSError as error:
        directory = Path(tempfile.mkdtemp(prefix="cosyserve-kernels-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        log.warning(
            "compiled kernels cannot be kept in %s (%s); they are compiled again at each start. %s names a directory",
            root,
            error,
            CACHE_DIRECTORY,
        )
    environ[TRITON] = str(directory)
    return directory


def _check(directory: Path) -> None:
    """Its files are loaded as code: no other user may write it, or replace it by another
    directory.
    """
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
        raise PermissionError(f"{directory} is another user's, a link, or writable by all")
    if not os.access(directory, os.W_OK):
        raise PermissionError(f"{directory} cannot be written")


def _describe(directory: Path, key: Key) -> None:
    """Write the key in readable form, for people."""
    with tempfile.NamedTemporaryFile("w", dir=directory, prefix="key.", delete=False) as file:
        file.write(json.dumps(asdict(key), indent=1) + "\n")
    Path(file.name).replace(directory / "key.json")


def _prune(root: Path, used: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 86_400
    for other in root.iterdir():
        with contextlib.suppress(OSError):  # another start deletes it too
            if other != used and other.is_dir() and (other / "key.json").exists() and other.stat().st_mtime < oldest:
                shutil.rmtree(other)
                log.info("compiled kernels unused for %d days are deleted: %s", UNUSED_DAYS, other.name)


class KernelCount:
    """A listener of Triton's compiler (`triton.knobs.CompilationListener`).

    cached: how many kernels the cache had. compiled: how often each kernel was compiled, by name: a
    kernel of other constants is another one. seconds: that compiling took.
    """

    def __init__(self) -> None:
        self.cached, self.seconds = 0, 0.0
        self.compiled: collections.Counter[str] = collections.Counter()

    def __call__(self, *, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        if cache_hit:
            self.cached += 1
            return
        self.compiled[str(metadata.get("name", ""))] += 1
        self.seconds += times.total / 1e6

    def __str__(self) -> str:
        if not (count := self.compiled.total()):
            return f"{self.cached} from the cache, none compiled"
        names = ", ".join(f"{name} {times}" for name, times in self.compiled.most_common(_NAMED))
        more = ", ..." if len(self.compiled) > _NAMED else ""
        return f"{self.cached} from the cache, {count} compiled in {self.seconds:.1f} s ({names}{more})"


@contextlib.contextmanager
def counted_kernels(kernels: str) -> Iterator[KernelCount]:
    """Context in which kernels are launched for the first time; at its end the count is logged.
    kernels: what they are. Raises ImportError without Triton.
    """
    from triton import knobs

    before, count = knobs.compilation.listener, KernelCount()
    knobs.compilation.listener = count
    try:
        yield count
    finally:
        knobs.compilation.listener = before
        log.info("start: %s: %s", kernels, count)
