"""Where compiled GPU kernels are kept between starts: a directory of their own for each GPU,
driver, compiler and model.

Triton names each kernel by its source and its compiler, writes it beside its place and moves it
there, so that two processes may share a directory and never see half a file. What it does not name
is in the key here. The files name each other by absolute paths: a directory that is moved, or
mounted elsewhere, is compiled anew.
"""

import atexit
import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cosyserve.engines.cache_directory import VARIABLE, cache_directory
from cosyserve.engines.gpu_facts import driver_version

log = logging.getLogger(__name__)
TRITON = "TRITON_CACHE_DIR"
UNUSED_DAYS = 30
"""What no start has used for so long is deleted by the next one."""


def triton_version() -> str:
    """Of the Triton that is installed, which may be one that goes by another name; empty
    without.
    """
    for name in ("triton", "pytorch-triton"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return ""


@dataclass(frozen=True, kw_only=True)
class Key:
    """What compiled kernels depend on. gpu: its name; capability: major and minor; model: content
    hash of the weights.
    """

    gpu: str
    capability: tuple[int, int]
    torch: str
    model: str
    triton: str = field(default_factory=triton_version)
    driver: str = field(default_factory=driver_version)

    @property
    def directory(self) -> str:
        """Name of the directory: the GPU for the eye, the rest as a hash."""
        readable = re.sub(r"[^a-z0-9]+", "-", self.gpu.lower()).strip("-")[:40]
        return f"{readable}-{hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]}"


def keep_kernels(key: Key, environ: MutableMapping[str, str] = os.environ) -> Path:
    """Have Triton keep its kernels under COSYSERVE_CACHE_DIR (else `cosyserve` in the user's cache
    directory), and return where.

    Call it before the first kernel is compiled. A TRITON_CACHE_DIR that is set stays, unless it
    lies below COSYSERVE_CACHE_DIR: the images set that one for other libraries' kernels. Where
    nothing can be kept, or others could write it, there is a warning, and a directory that goes
    with the process. Whoever names a directory answers for those above `kernels`. Blocks for file
    operations.
    """
    ours = cache_directory(environ)
    if (named := environ.get(TRITON)) and not (environ.get(VARIABLE) and Path(named).is_relative_to(ours)):
        return Path(named)
    root = ours / "kernels"
    directory = root / key.directory
    try:
        ours.mkdir(mode=0o700, parents=True, exist_ok=True)
        for private in (root, directory) if environ.get(VARIABLE) else (ours, root, directory):
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
            "compiled kernels cannot be kept in %s (%s); they are compiled anew at each start. %s names a directory",
            root,
            error,
            VARIABLE,
        )
    environ[TRITON] = str(directory)
    return directory


def _check(directory: Path) -> None:
    """What lies there is loaded as code: nobody else may write it, or put another directory in its
    place.
    """
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
        raise PermissionError(f"{directory} is another user's, a link, or writable by all")
    if not os.access(directory, os.W_OK):
        raise PermissionError(f"{directory} cannot be written")


def _describe(directory: Path, key: Key) -> None:
    """Leave the key in words, for whoever looks."""
    with tempfile.NamedTemporaryFile("w", dir=directory, prefix="key.", delete=False) as file:
        file.write(json.dumps(asdict(key), indent=1) + "\n")
    Path(file.name).replace(directory / "key.json")


def _prune(root: Path, used: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 86_400
    for other in root.iterdir():
        with contextlib.suppress(OSError):  # another start deletes it too
            if other != used and other.is_dir() and (other / "key.json").exists() and other.stat().st_mtime < oldest:
                shutil.rmtree(other)
                log.info("compiled kernels that nobody used for %d days are deleted: %s", UNUSED_DAYS, other.name)
