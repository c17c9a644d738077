"""Releases: one version everywhere, a kept contract for each, and commits that exist."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def releases() -> dict[str, dict[str, str]]:
    return tomllib.loads((ROOT / "releases.toml").read_text(encoding="utf-8"))


def version_of(path: str) -> str:
    version: str = tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]["version"]
    return version


def test_one_version_everywhere() -> None:
    newest = next(iter(releases()))
    server = tomllib.loads((ROOT / "packages" / "server" / "pyproject.toml").read_text(encoding="utf-8"))
    assert {version_of("pyproject.toml"), version_of("packages/server/pyproject.toml")} == {newest}
    assert f"cosyserve=={newest}" in server["project"]["dependencies"]
    assert re.search(rf"^## {re.escape(newest)}$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    chart = (ROOT / "k8s" / "chart" / "Chart.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^(?:appVersion|version): ([0-9.]+)$", chart, re.MULTILINE) == [newest, newest]
    images = (ROOT / "compose.services.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"COSYSERVE_TAG:-([0-9.]+)", images)) == {newest}


def test_every_release_has_its_contract() -> None:
    assert [each["contract"] for each in releases().values()] == [
        f"protos/released/v{version}.binpb" for version in releases()
    ]
    for each in releases().values():
        assert (ROOT / each["contract"]).stat().st_size > 10_000


@pytest.mark.parametrize("version", list(releases()))
def test_a_named_commit_is_a_commit(version: str) -> None:
    commit = releases()[version]["commit"]
    assert re.fullmatch(r"|[0-9a-f]{40}", commit)
    if not commit or subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no commit is named yet, or this is no git checkout")
    shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if shallow.stdout.strip() == "true":
        pytest.skip("a shallow clone lacks older commits")
    found = subprocess.run(["git", "cat-file", "-t", commit], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "commit"
