"""`download.json`: what was fetched into a model directory, so that the next fetch has to bring the
same.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cosyserve.errors import ModelError
from tools.model.fetch.wanted_files import check_relative, check_sha256

RECORD = "download.json"


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


@dataclass(frozen=True)
class Record:
    """source: where the files came from. files: by path."""

    source: str
    files: dict[str, SizeAndHash]


def read_record(path: Path) -> Record:
    """Raises ModelError when the file is missing or is no such record."""
    try:
        return parse_record(path, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: unreadable: {error}") from error


def parse_record(where: object, text: str) -> Record:
    """Raises ModelError naming `where`."""
    try:
        data = json.loads(text)
        files = {
            check_relative(where, str(name)): SizeAndHash(
                int(entry["bytes"]), check_sha256(f"{where}: {name}", entry["sha256"])
            )
            for name, entry in data["files"].items()
        }
        return Record(str(data["source"]), files)
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
