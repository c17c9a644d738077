"""This source tree, and that of the newest release whose commit `releases.toml` names."""

import io
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.stacks.up_process import ROOT


@dataclass(frozen=True)
class Tree:
    """name: of its release, `this` for what is checked out. root: what PYTHONPATH has to name."""

    name: str
    root: Path


THIS = Tree("this", ROOT)


class CommitMissing(Exception):
    """The clone does not hold the commit of a release."""


def last_release(releases: Path = ROOT / "releases.toml") -> tuple[str, str]:
    """Number and commit of the newest release that has one: the newest entry names none while its
    own commit is being made.
    """
    named = tomllib.loads(releases.read_text(encoding="utf-8"))
    return next((number, each["commit"]) for number, each in named.items() if each["commit"])


def unpacked(number: str, commit: str, folder: Path, clone: Path = ROOT) -> Tree:
    """The tree of `commit`, written into `folder`. Raises CommitMissing, which says how to get
    it.
    """
    archive = subprocess.run(["git", "archive", commit], cwd=clone, capture_output=True, check=False)
    if archive.returncode != 0:
        said = archive.stderr.decode(errors="replace").strip()
        raise CommitMissing(
            f"the upgrade from {number} cannot be tested: this clone has no commit {commit} ({said}); "
            "a shallow clone gets it by `git fetch --unshallow`"
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return Tree(number, folder)
