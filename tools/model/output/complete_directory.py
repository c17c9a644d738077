"""Directories that appear whole or not at all.

The result is put together in a hidden folder next to its place, file by file; a file that is done
keeps its name there, so that a run which was cut off is resumed. A manifest with the size and
sha256 of every file comes last, and then one rename. Only a directory with a manifest that says the
same identity is taken for what was asked for.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cosyserve.engines.engine_cache import File, sha256_of, sync
from cosyserve.errors import ModelError
from cosyserve.file_lock import MANIFEST, waiting_lock

_UNFINISHED = ".partial"
_SUPERSEDED = ".superseded"
Identity = dict[str, str]
"""What a directory was made of and how: equal identities, equal content."""


@dataclass(frozen=True)
class Manifest:
    """What a finished directory holds, by path relative to it."""

    identity: Identity
    files: dict[str, File]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files.values())


def read_manifest(directory: Path) -> Manifest | None:
    """None where there is none, or none of ours."""
    try:
        data: Any = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        files = {str(name): File(int(facts["bytes"]), str(facts["sha256"])) for name, facts in data["files"].items()}
        return Manifest({str(key): str(value) for key, value in data["identity"].items()}, files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def damage(directory: Path, manifest: Manifest, *, thorough: bool) -> str | None:
    """What is wrong with a directory that should be as its manifest says; None when nothing is.
    thorough: read everything and compare sha256, otherwise names and sizes."""
    for name, facts in manifest.files.items():
        path = directory / name
        if not path.is_file():
            return f"{path}: missing"
        if path.stat().st_size != facts.bytes:
            return f"{path}: {path.stat().st_size} bytes, the manifest says {facts.bytes}"
        if thorough and sha256_of(path) != facts.sha256:
            return f"{path}: its sha256 is not the manifest's"
    return None


class Assembly:
    """The folder in which a directory is put together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, write: Callable[[Path], object]) -> None:
        """Have `write` make the file, unless a run before has finished it."""
        path = self.folder / name
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + _UNFINISHED)
        write(unfinished)
        sync(unfinished)
        unfinished.rename(path)

    def json(self, name: str, data: object, *, indent: int = 1) -> None:
        """A file of JSON."""
        text = json.dumps(data, indent=indent) + "\n"
        self.file(name, lambda path: path.write_text(text, encoding="utf-8"))

    def seal(self, identity: Identity) -> Manifest:
        """Write the manifest over all files there are."""
        for unfinished in self.folder.rglob(f"*{_UNFINISHED}"):
            unfinished.unlink()
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file() and path.name != MANIFEST)
        files = {path.relative_to(self.folder).as_posix(): File(path.stat().st_size, sha256_of(path)) for path in paths}
        self.json(MANIFEST, {"identity": identity, "files": {name: asdict(file) for name, file in files.items()}})
        return Manifest(identity, files)


def publish(
    target: Path,
    identity: Identity,
    make: Callable[[Assembly], None],
    *,
    needed: int = 0,
    replace: bool = False,
    on_wait: Callable[[str], None] = lambda line: None,
) -> tuple[Manifest, bool]:
    """The manifest of `target`, made if it is not there yet, and whether it was made. Of several
    processes at once one makes it.

    needed: bytes that `make` will write at most. replace: also where something else of ours stands.
    on_wait: called with the name of the process that is at it. Raises ModelError when there is no
    room, or `target` holds something else.
    """
    target = target.resolve()
    if target == Path.cwd():  # it appears by a rename: a shell in it would lose its directory
        raise ModelError(f"{target}: is the working directory; name one inside it")
    target.parent.mkdir(parents=True, exist_ok=True)
    with waiting_lock(target.with_name(f".{target.name}.lock"), f"{target}", on_wait):
        _clear_superseded(target)
        present = read_manifest(target)
        if present is not None and present.identity == identity and damage(target, present, thorough=False) is None:
            return present, False
        if present is None and target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ModelError(f"{target}: exists and was not made by this command; give another --output")
        if present is not None and present.identity != identity and not replace:
            was = ", ".join(f"{key} {value}" for key, value in present.identity.items() if identity.get(key) != value)
            raise ModelError(
                f"{target}: holds another conversion ({was}); give another --output, or --force to replace it"
            )
        folder = staging(target, identity)
        folder.mkdir(exist_ok=True)
        done = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        check_room(target.parent, needed - done)
        assembly = Assembly(folder)
        make(assembly)
        manifest = assembly.seal(identity)
        if target.exists():
            target.rename(target.with_name(f".{target.name}{_SUPERSEDED}"))
        folder.rename(target)
        sync(target.parent)
        _clear_superseded(target)
        return manifest, True


def staging(target: Path, identity: Identity) -> Path:
    """Where `target` is put together: the same folder for the same identity, so that a later run
    finds what is done.
    """
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    return target.with_name(f".{target.name}.{key}{_UNFINISHED}")


def leftovers(parent: Path) -> list[Path]:
    """Folders of runs that were cut off, and of directories that were replaced."""
    return sorted(
        path for path in parent.glob(".*") if path.is_dir() and path.name.endswith((_UNFINISHED, _SUPERSEDED))
    )


def check_room(folder: Path, needed: int) -> None:
    """Raises ModelError when the file system of `folder` has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(f"{folder}: {free / 1e9:.2f} GB free, {needed / 1e9:.2f} GB are needed")


def _clear_superseded(target: Path) -> None:
    old = target.with_name(f".{target.name}{_SUPERSEDED}")
    if old.exists() and not target.exists():
        # cut off between the two renames: what was there before is what is there
        old.rename(target)
    shutil.rmtree(old, ignore_errors=True)
