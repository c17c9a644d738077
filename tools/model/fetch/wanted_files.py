"""Which files of a published model are wanted: `models/*.toml`, read and checked."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cosyserve.errors import ModelError

_NAME = Path("models") / "cosyvoice2-0.5b.toml"
_BESIDE = Path(__file__).resolve().parents[3] / _NAME
CATALOGUE = _BESIDE if _BESIDE.exists() else _NAME
"""Next to the package in a checkout, in the working directory of an image."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class WantedFile:
    """path: relative, with slashes. size and sha256: None while they are not known. about: bytes,
    roughly.
    """

    path: str
    purpose: str
    about: int
    optional: bool
    unless: str | None
    """Fetched only with this option."""
    size: int | None
    sha256: str | None


@dataclass(frozen=True)
class Repository:
    name: str
    revision: str


@dataclass(frozen=True)
class Catalogue:
    """repositories: by hub."""

    what: str
    repositories: dict[str, Repository]
    files: tuple[WantedFile, ...]


def read_catalogue(path: Path = CATALOGUE) -> Catalogue:
    """Raises ModelError naming file and entry."""
    try:
        with path.open("rb") as stream:
            data = tomllib.load(stream)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ModelError(f"{path}: no list of model files: {error}") from error
    try:
        repositories = {
            hub: Repository(data[hub]["repository"], data[hub]["revision"]) for hub in ("huggingface", "modelscope")
        }
        files = tuple(_file(path, name, entry) for name, entry in data["files"].items())
        return Catalogue(str(data["what"]), repositories, files)
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: an entry is missing or of the wrong form: {error}") from error


def check_relative(where: object, name: str) -> str:
    """`name`, if it stays below the directory it is joined to. Raises ModelError."""
    parts = PurePosixPath(name).parts
    if (
        not parts
        or name.startswith("/")
        or "\\" in name
        or any(part in ("..", ".") or part.startswith("~") for part in parts)
    ):
        raise ModelError(f"{where}: {name!r} is no path inside a model directory")
    return name


def check_sha256(where: object, value: object) -> str:
    """`value`, if it is 64 hex digits. Raises ModelError."""
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise ModelError(f"{where}: sha256 is {value!r}, expected 64 hex digits")
    return value


def _file(path: Path, name: str, entry: dict[str, Any]) -> WantedFile:
    sha256, size = entry.get("sha256"), entry.get("size")
    return WantedFile(
        path=check_relative(path, name),
        purpose=str(entry["for"]),
        about=int(entry.get("about", size or 0)),
        optional=bool(entry.get("optional", False)),
        unless=entry.get("unless"),
        size=None if size is None else int(size),
        sha256=None if sha256 is None else check_sha256(f"{path}: {name}", sha256),
    )
