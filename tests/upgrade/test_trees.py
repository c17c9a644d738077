"""Where the commit of the last release is missing the upgrade is not tested, and that is a
failure.
"""

import subprocess
from pathlib import Path

import pytest

from tests.stacks.up_process import ROOT
from tests.upgrade.trees import CommitMissing, last_release, unpacked


def git(*words: object, cwd: Path) -> str:
    done = subprocess.run(["git", *map(str, words)], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_newest_release_that_names_a_commit(tmp_path: Path) -> None:
    releases = tmp_path / "releases.toml"
    releases.write_text('["0.3.0"]\ncommit = ""\n["0.2.0"]\ncommit = "abc"\n["0.1.0"]\ncommit = "def"\n')
    assert last_release(releases) == ("0.2.0", "abc")


def test_a_shallow_clone_is_told_how_to_get_the_commit(tmp_path: Path) -> None:
    source, clone = tmp_path / "source", tmp_path / "clone"
    git("init", "--quiet", source, cwd=tmp_path)
    author = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    for number in range(2):
        (source / "file").write_text(f"{number}\n")
        git("add", "file", cwd=source)
        git(*author, "commit", "--quiet", "--message", f"{number}", cwd=source)
    released = git("rev-parse", "HEAD~1", cwd=source)
    git("clone", "--quiet", "--depth", "1", f"file://{source}", clone, cwd=tmp_path)
    with pytest.raises(CommitMissing, match=f"no commit {released}.*git fetch --unshallow"):
        unpacked("0.1.0", released, tmp_path / "tree", clone)
    git("fetch", "--quiet", "--unshallow", cwd=clone)
    assert (unpacked("0.1.0", released, tmp_path / "tree", clone).root / "file").read_text() == "0\n"


def test_the_tree_is_that_of_the_release(tmp_path: Path) -> None:
    number, commit = last_release()
    tree = unpacked(number, commit, tmp_path)
    assert f'version = "{number}"' in (tree.root / "pyproject.toml").read_text(encoding="utf-8")
    contract = f"protos/released/v{number}.binpb"
    assert (tree.root / contract).read_bytes() == (ROOT / contract).read_bytes()
