"""Which files of a published model are wanted (`models/*.toml`), and what was fetched into a model
directory (`download.json`), so that the next fetch has to bring the same.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.generation import Generation
from cosyserve.generations.separate_decoder import SeparateDecoder

_FOLDER = Path("models")
_BESIDE = Path(__file__).resolve().parents[3] / _FOLDER


def catalogue_of(model: Generation | SeparateDecoder) -> Path:
    """The list of the files of a published model: next to the package in a checkout, in the working
    directory of an image.
    """
    name = f"{model.name}-{'token2wav' if isinstance(model, SeparateDecoder) else '0.5b'}.toml"
    return _BESIDE / name if (_BESIDE / name).exists() else _FOLDER / name


CATALOGUE = catalogue_of(COSYVOICE2)
_SHA256 = re.compile(r"[0-9a-f]{64}")
RECORD = "download.json"


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


@dataclass(frozen=True)
class SizeAndHash:
    """Size and sha256 of a file as a source states them. None: not stated."""

    size: int | None = None
    sha256: str | None = None

    @classmethod
    def of(cls, size: object, sha256: object) -> "SizeAndHash":
        """From a listing; what is not of the right form is not said."""
        right = isinstance(sha256, str) and len(sha256) == 64
        return cls(size if isinstance(size, int) and size >= 0 else None, str(sha256).lower() if right else None)

    def admits(self, facts: "SizeAndHash") -> bool:
        """Whether a file of these facts is what is stated here."""
        return self.size in (None, facts.size) and self.sha256 in (None, facts.sha256)

    def __str__(self) -> str:
        size = "any number of" if self.size is None else self.size
        return f"{size} bytes with {'any sha256' if self.sha256 is None else f'sha256 {self.sha256}'}"


def read_record(path: Path) -> dict[str, SizeAndHash]:
    """What was fetched, by path; nothing where there is no record. Raises ModelError when it is
    none, or unreadable.
    """
    try:
        return parse_record(path, path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: unreadable: {error}") from error


def parse_record(where: object, text: str) -> dict[str, SizeAndHash]:
    """Raises ModelError naming `where`."""
    try:
        return {
            check_relative(where, str(name)): SizeAndHash(
                int(entry["bytes"]), check_sha256(f"{where}: {name}", entry["sha256"])
            )
            for name, entry in json.loads(text)["files"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{where}: no record of a download ({type(error).__name__}: {error}); remove it to trust the "
            "files that are there"
        ) from error


def write_record(directory: Path, source: str, files: Mapping[str, SizeAndHash]) -> None:
    """Replace the record as a whole."""
    entries = {name: {"bytes": known.size, "sha256": known.sha256} for name, known in sorted(files.items())}
    unfinished = directory / f"{RECORD}.part"
    with unfinished.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps({"source": source, "files": entries}, indent=1) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(directory / RECORD)


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
