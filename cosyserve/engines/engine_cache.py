"""Built engines on disk: an engine is used only if everything it was built for is unchanged, and is
never half written.

An entry is a directory `<component>-<digest of its facts>` with the files of the engine and
`manifest.json`, which is written last: facts, and size and sha256 of each file. The process that
holds the file lock of the entry builds it under another name and renames it when all of it is on
disk; other processes wait for the lock and then find the entry. The next builder removes what a
killed one left.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cosyserve.file_lock import MANIFEST, waiting_lock
from cosyserve.settings import cache_directory

FLOW_COMPONENTS, VOCODER_COMPONENTS = ("encoder", "estimator"), ("pitch", "filter")
COMPONENTS = FLOW_COMPONENTS + VOCODER_COMPONENTS
"""Their names in the engine cache follow `token2wav.`."""


_BUILDING, _BROKEN = ".building-", ".broken-"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.]*")
Build = Callable[[Path], None]
"""Writes the files of an engine into an empty directory; if it raises, nothing is published."""


def default_directory() -> Path:
    """`engines` in the cache directory of `cosyserve.settings`."""
    return cache_directory() / "engines"


@dataclass(frozen=True)
class EngineKey:
    """component: what is built, such as `token2wav.estimator`; lower case, digits, dots,
    underscores. facts: everything that decides whether the result may be used: model hash, GPU,
    compute capability, versions of TensorRT and driver, precision, profile.
    """

    component: str
    facts: Mapping[str, str]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.component):
            raise ValueError(
                f"component {self.component!r}: lower case letters, digits, dots and underscores are allowed"
            )

    @property
    def digest(self) -> str:
        """Hex, 16 digits: sha256 over component and facts."""
        return hashlib.sha256(json.dumps([self.component, sorted(self.facts.items())]).encode()).hexdigest()[:16]

    @property
    def directory_name(self) -> str:
        return f"{self.component}-{self.digest}"

    def differences(self, other: "EngineKey") -> str:
        """The facts in which an engine built for `other` differs, in words; empty if none does."""
        names = sorted(self.facts.keys() | other.facts.keys())
        return "; ".join(
            f"{name} is {self.facts.get(name, 'not given')}, it was built for {other.facts.get(name, 'none')}"
            for name in names
            if self.facts.get(name) != other.facts.get(name)
        )


@dataclass(frozen=True)
class File:
    """Size and hash of a file as a manifest states them."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Engine:
    """A complete entry. files: by name. built: seconds since the epoch."""

    key: EngineKey
    directory: Path
    files: Mapping[str, File]
    built: float

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.bytes for file in self.files.values())

    def file(self, name: str) -> Path:
        """Path of one of its files."""
        return self.directory / name


@dataclass(frozen=True)
class Refused:
    """Why an existing entry is not used."""

    directory: Path
    reason: str


@dataclass
class EngineCache:
    """root: created when an engine is built. on_wait: called with a message that names the process
    this one waits for.

    All methods block while they read (a hash over all bytes), wait or build; call them from a
    thread.
    """

    root: Path
    on_wait: Callable[[str], None] = field(default=lambda message: None)

    def find(self, key: EngineKey) -> Engine | Refused | None:
        """The entry of exactly this key, with its bytes checked; Refused if they are not those that
        were built; None without an entry.
        """
        directory = self.root / key.directory_name
        if not directory.is_dir():
            return None
        engine = _manifest(directory)
        if isinstance(engine, Refused):
            return engine
        if engine.key != key:
            return Refused(directory, key.differences(engine.key) or "its manifest names another component")
        wrong = _wrong_file(engine)
        return engine if wrong is None else Refused(directory, wrong)

    def refused(self, key: EngineKey) -> list[Refused]:
        """Entries of the component that were built for other facts, each with the reason: for the
        message if no entry matches.
        """
        return [
            Refused(engine.directory, key.differences(engine.key))
            for engine in self.entries()
            if engine.key.component == key.component and engine.key.facts != key.facts
        ]

    def obtain(self, key: EngineKey, build: Build) -> Engine:
        """The entry of this key; it is built first if it is missing or its bytes are wrong. Of
        several processes one builds.

        Raises OSError for failures of the disk, and what `build` raises.
        """
        entry = self.find(key)
        if isinstance(entry, Engine):
            return entry
        self.root.mkdir(parents=True, exist_ok=True)
        with waiting_lock(self.root / f".{key.directory_name}.lock", f"engine {key.component}", self.on_wait):
            entry = self.find(key)
            if isinstance(entry, Engine):
                return entry
            self._sweep(key)
            if entry is not None:
                self._set_aside(entry.directory)
            return self._built(key, build)

    def entries(self) -> Iterator[Engine]:
        """All published entries, by name; their bytes are not checked."""
        for directory in sorted(self.root.glob("[!.]*")):
            if isinstance(engine := _manifest(directory), Engine):
                yield engine

    def _built(self, key: EngineKey, build: Build) -> Engine:
        making = self.root / f"{_BUILDING}{key.directory_name}-{os.getpid()}-{time.monotonic_ns()}"
        making.mkdir()
        try:
            build(making)
            files = {path.name: File(path.stat().st_size, sha256_of(path)) for path in sorted(making.iterdir())}
            if not files:
                raise OSError(f"engine {key.component}: the build wrote no file")
            engine = Engine(key, self.root / key.directory_name, files, time.time())
            manifest = {
                "component": key.component,
                "facts": dict(key.facts),
                "files": {name: asdict(file) for name, file in files.items()},
                "built": engine.built,
            }
            (making / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True), encoding="utf-8")
            for path in (*making.iterdir(), making):
                sync(path)
            making.rename(engine.directory)
            sync(self.root)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
        return engine

    def _sweep(self, key: EngineKey) -> None:
        """Remove what killed builders of this key left; under its lock no other process is building
        it.
        """
        for prefix in (_BUILDING, _BROKEN):
            for left in self.root.glob(f"{prefix}{key.directory_name}-*"):
                shutil.rmtree(left, ignore_errors=True)

    def _set_aside(self, directory: Path) -> None:
        """Rename it first, so that no other process finds it half deleted."""
        aside = self.root / f"{_BROKEN}{directory.name}-{os.getpid()}-{time.monotonic_ns()}"
        directory.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _manifest(directory: Path) -> Engine | Refused:
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        key = EngineKey(manifest["component"], {str(name): str(value) for name, value in manifest["facts"].items()})
        files = {
            str(name): File(int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest["files"].items()
        }
        return (
            Engine(key, directory, files, float(manifest["built"]))
            if files
            else Refused(directory, f"its {MANIFEST} names no file")
        )
    except FileNotFoundError:
        return Refused(directory, f"it has no {MANIFEST}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Refused(directory, f"its {MANIFEST} cannot be read: {type(error).__name__}")


def _wrong_file(engine: Engine) -> str | None:
    """The first file whose bytes differ from the manifest, in words."""
    for name, file in sorted(engine.files.items()):
        path = engine.file(name)
        if Path(name).name != name or not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != file.bytes:
            return f"{name} has {path.stat().st_size} bytes, {file.bytes} were built"
        if sha256_of(path) != file.sha256:
            return f"{name} has other bytes than were built"
    return None


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
