"""Releases: one version everywhere, a kept contract for each, and commits that exist."""

import re
import subprocess
import tomllib
from typing import Any

import pytest

from tests.stacks.up_process import ROOT
from tools.release.version import current, disagreements


def toml(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


RELEASES = toml("releases.toml")


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_one_version_everywhere() -> None:
    """That of the newest release, or of the one that is being made."""
    newest = next(iter(RELEASES))
    assert disagreements() == []
    assert current() == newest
    assert re.search(rf"^## {re.escape(newest)}$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_release_has_its_contract() -> None:
    for version, each in RELEASES.items():
        assert each["contract"] == f"protos/released/v{version}.binpb"
        assert (ROOT / each["contract"]).stat().st_size > 10_000


@pytest.mark.parametrize("version", list(RELEASES))
def test_a_named_commit_is_a_commit(version: str) -> None:
    commit = RELEASES[version]["commit"]
    assert re.fullmatch(r"|[0-9a-f]{40}", commit)
    if not commit:
        pytest.skip("no commit is named yet: the one after it does")
    found = git("cat-file", "-t", commit).stdout.strip()
    assert found == "commit", f"{commit} is not here; a shallow clone gets it by `git fetch --unshallow`"
    contract = RELEASES[version]["contract"]
    assert git("rev-parse", f"{commit}:{contract}").stdout == git("hash-object", contract).stdout
