"""What every file of the product has to be: short, named for its idea, and silent about the machine
it was written on.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GENERATED = ("cosyserve/v1/", "cosyserve/foreign/")
FORBIDDEN_NAMES = {"utils", "common", "helpers", "manager", "base"}
# Written in halves, for this file is searched too.
FORBIDDEN_TEXT = re.compile("|".join(["/work" + "/", "\\.\\./" + "shared/", "/tmp/" + "brief", "gpu" + "-lease"]))


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return [Path(name) for name in names if name and (ROOT / name).exists()]


def modules() -> list[Path]:
    code = ("cosyserve/", "services/", "tools/", "bench/")
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and str(path).startswith(code) and not str(path).startswith(GENERATED)
    ]


def text_of(path: Path) -> str | None:
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def test_no_module_is_longer_than_300_lines() -> None:
    long = {str(path): lines for path in modules() if (lines := len((text_of(path) or "").splitlines())) > 300}
    assert not long


def test_modules_are_named_for_one_idea() -> None:
    assert not [str(path) for path in modules() if FORBIDDEN_NAMES & set(path.stem.split("_"))]


def test_modules_begin_with_their_purpose() -> None:
    assert not [
        str(path)
        for path in modules()
        if path.name != "__init__.py" and not (text_of(path) or "").startswith(('"""', 'r"""'))
    ]


def test_no_file_names_a_place_of_the_machine_it_was_written_on() -> None:
    texts = {str(path): text_of(path) or "" for path in tracked()}
    assert not {path: match[0] for path, text in texts.items() if (match := FORBIDDEN_TEXT.search(text))}


def test_each_slow_test_exists() -> None:
    """A name of `slow.txt` that no test has would slow `make test` down without notice. conftest.py
    refuses those in a file that exists.
    """
    lines = (ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if not (ROOT / line.partition("::")[0]).exists()]
