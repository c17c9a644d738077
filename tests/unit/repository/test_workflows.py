"""The workflows of .github: pinned actions, the make targets and images that there are, and all
commits where tests need them. `make workflows` reads them with actionlint.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stacks.up_process import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"^\s*(?:- )?uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", re.MULTILINE)


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_named_by_its_commit(path: Path) -> None:
    """A tag can be moved."""
    text = path.read_text(encoding="utf-8")
    assert len(PINNED.findall(text)) == text.count("uses: ") > 0


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_nothing_may_write_but_what_says_so_and_every_job_ends(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 180 for job in workflow["jobs"].values())
    checkouts = [step for step in steps(workflow) if "checkout" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_the_make_targets_are_there(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {name for step in steps(read(path)) for name in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))}
    assert asked
    assert asked <= targets


def test_every_image_is_built() -> None:
    stages = set(re.findall(r"^FROM .* AS ([\w-]+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE))
    images = stages - {"wheel", "slim", "slim-torch"}
    released = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["images"]["strategy"]["matrix"]["target"]
    assert set(released) == images
    built = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["images"]["strategy"]["matrix"]["target"]
    assert set(built) == images - {"llm", "token2wav"}


def test_released_images_are_named_as_the_chart_names_them() -> None:
    """<image.repository>-<service>, below a registry."""
    values = yaml.safe_load((ROOT / "k8s" / "chart" / "values.yaml").read_text(encoding="utf-8"))
    released = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["images"]["steps"]
    (build,) = [step for step in released if step.get("id") == "build"]
    name = build["with"]["tags"].rpartition(":")[0]
    assert name == f"${{{{ env.REGISTRY }}}}/{values['image']['repository']}-${{{{ matrix.target }}}}"


def test_the_tests_of_upgrades_find_the_commit_of_the_last_release() -> None:
    job = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]
    (checkout,) = [step for step in job["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["fetch-depth"] == 0


def test_images_and_chart_are_signed_by_their_digest() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    for name in ("images", "chart"):
        assert jobs[name]["permissions"]["id-token"] == "write"
        (signing,) = [step for step in jobs[name]["steps"] if "cosign sign" in step.get("run", "")]
        assert "@" in signing["run"] + signing.get("env", {}).get("IMAGE", "")
