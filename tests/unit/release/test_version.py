"""One version: every place says what `pyproject.toml` says, and a new one is written everywhere."""

import re
import shutil
from pathlib import Path

import pytest

from tests.unit.repository.test_files import tracked
from tools.release.version import PLACES, ROOT, Place, current, disagreements, places

HISTORY = {"CHANGELOG.md", "releases.toml"}
"""Files that speak of earlier releases as well."""
RENDERED = "k8s/kustomize/base/"
"""Made from the chart; another test compares it."""
PROSE = ("docs/", "tests/", "protos/released/", "models/", "recipes/", RENDERED)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for place in PLACES:
        (tmp_path / place.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place.file, tmp_path / place.file)
    return tmp_path


def test_all_places_agree() -> None:
    assert disagreements() == []


def test_a_place_that_says_another_version_is_named(copy: Path) -> None:
    chart = copy / "k8s" / "chart" / "Chart.yaml"
    chart.write_text(chart.read_text(encoding="utf-8").replace(f"version: {current()}", "version: 9.9.9", 1))
    (wrong,) = disagreements(copy)
    assert wrong.startswith("k8s/chart/Chart.yaml: ")
    assert f"9.9.9, pyproject.toml says {current()}" in wrong


def test_images_in_examples_are_places_too(copy: Path) -> None:
    example = copy / "k8s" / "examples" / "one.yaml"
    example.parent.mkdir(parents=True)
    example.write_text("image: cosyserve-gateway:9.9.9\n---\nimage: busybox:1.0.0\n")
    assert disagreements(copy)[0].startswith("k8s/examples/one.yaml: ")
    for place in places(copy):
        place.write("1.2.3", copy)
    assert disagreements(copy) == []
    assert example.read_text() == "image: cosyserve-gateway:1.2.3\n---\nimage: busybox:1.0.0\n"


def test_a_new_version_is_written_everywhere(copy: Path) -> None:
    for place in PLACES:
        place.write("1.2.3rc1", copy)
    assert disagreements(copy) == []
    assert current(copy) == "1.2.3rc1"
    assert current() not in "".join((copy / place.file).read_text(encoding="utf-8") for place in PLACES)


def test_a_place_that_is_gone_stops_the_change(copy: Path) -> None:
    with pytest.raises(ValueError, match="5 versions are expected"):
        Place("pyproject.toml", r"\$\{COSYSERVE_TAG:-VERSION\}", 5).write("1.2.3", copy)


def test_no_other_file_states_the_version() -> None:
    """One that did would be forgotten by the next release."""
    known = {place.file for place in places()} | HISTORY
    stating = re.compile(rf"(?<![\w.]){re.escape(current())}(?![\w.])")
    others = []
    for path in map(str, tracked()):
        if (
            path in known
            or path.startswith(PROSE)
            or Path(path).suffix not in (".py", ".toml", ".yaml", ".yml", ".proto")
        ):
            continue
        text = (ROOT / path).read_text(encoding="utf-8")
        if any(
            stating.search(line) and re.search("cosyserve|version", line, re.IGNORECASE) for line in text.splitlines()
        ):
            others.append(path)
    assert others == []
