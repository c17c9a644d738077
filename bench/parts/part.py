"""One part of a measurement: what is run, for how long at most, and the file of its figures."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_SECONDS = 240.0
LOGS = "logs"


@dataclass(frozen=True)
class Part:
    """commands: arguments of Python, several to run side by side. limit: seconds after which it is
    stopped.

    alone: nothing else runs at the same time, since it takes times. keeps: stopped half way it goes
    on from its own figures. makes: a file without which it is run again. under: conditions of its
    figures that options change, as text; done under others it is run again. needs: parts that go
    before it when it is asked for alone, and without which it is left out. answers: its only
    command prints its figures, one JSON value, on standard output. prevented: why it cannot be run
    here; empty: it can.
    """

    name: str
    about: str
    commands: tuple[tuple[str, ...], ...]
    limit: float = LONGEST_SECONDS
    alone: bool = True
    keeps: bool = False
    makes: Path | None = None
    under: str = ""
    needs: tuple[str, ...] = ()
    answers: bool = False
    prevented: str = ""

    def figures(self, out: Path) -> Path:
        """The file that it writes, with what it has measured so far."""
        return out / f"{self.name}.json"

    def log(self, out: Path) -> Path:
        return out / LOGS / f"{self.name}.log"

    def answer(self, out: Path) -> Path:
        """The file of what it printed, if that is its figures."""
        return out / LOGS / f"{self.name}.out"


def chosen(parts: Sequence[Part], only: Sequence[str], without: Sequence[str]) -> list[Part]:
    """Those named and what they need, in their own order; all without a name. Raises
    argparse.ArgumentTypeError for one that is none.
    """
    known = [part.name for part in parts]
    for name in (*only, *without):
        if name not in known:
            raise argparse.ArgumentTypeError(f"there is no part {name!r}; there are {', '.join(known)}")
    wanted = {*only, *(need for part in parts if part.name in only for need in part.needs)} if only else set(known)
    return [part for part in parts if part.name in wanted - set(without)]


def together(parts: Sequence[Part], most: int) -> list[list[Part]]:
    """In their order; neighbours that need not be alone share a place, `most` at a time."""
    groups: list[list[Part]] = []
    for part in parts:
        if groups and not part.alone and not groups[-1][0].alone and len(groups[-1]) < most:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


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
