"""Figures that are in their file as soon as they are known."""

import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, content: Any) -> None:
    """As JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    aside.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(aside, path)  # noqa: PTH105 - the same file system


class ResultsFile(dict[str, Any]):
    """A dictionary that writes its file at every assignment to one of its keys. path: None keeps
    nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(json.loads(path.read_text()) if path and path.exists() else {})
        self._path = path

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if self._path:
            write(self._path, self)
