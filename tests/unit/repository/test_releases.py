"""Releases: one version everywhere, a kept contract for each, and commits that exist."""

import re
import subprocess
import tomllib
from typing import Any

import pytest

from tests.stacks.up_process import ROOT


def toml(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


RELEASES = toml("releases.toml")


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_one_version_everywhere() -> None:
    newest = next(iter(RELEASES))
    client, server = (toml(path)["project"] for path in ("pyproject.toml", "packages/server/pyproject.toml"))
    assert client["version"] == server["version"] == newest
    assert f"cosyserve=={newest}" in server["dependencies"]
    assert re.search(rf"^## {re.escape(newest)}$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    chart = (ROOT / "k8s" / "chart" / "Chart.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^(?:appVersion|version): ([0-9.]+)$", chart, re.MULTILINE) == [newest, newest]
    images = (ROOT / "compose.services.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"COSYSERVE_TAG:-([0-9.]+)", images)) == {newest}


def test_every_release_has_its_contract() -> None:
    for version, each in RELEASES.items():
        assert each["contract"] == f"protos/released/v{version}.binpb"
        assert (ROOT / each["contract"]).stat().st_size > 10_000


@pytest.mark.parametrize("version", list(RELEASES))
def test_a_named_commit_is_a_commit(version: str) -> None:
    commit = RELEASES[version]["commit"]
    assert re.fullmatch(r"|[0-9a-f]{40}", commit)
    if not commit or git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no commit is named yet, this is no git checkout, or a shallow clone, which lacks older commits")
    assert git("cat-file", "-t", commit).stdout.strip() == "commit"
    contract = RELEASES[version]["contract"]
    assert git("rev-parse", f"{commit}:{contract}").stdout == git("hash-object", contract).stdout
