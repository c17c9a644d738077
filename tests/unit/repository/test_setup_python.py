"""What `make setup` says of a Python that cannot run this project: the version, or the module, that
is to blame.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[3] / "Makefile"
OTHER_VERSION = "import sys\nsys.version_info = (3, 9, 2, 'final', 0)\n"
WITHOUT = """
import sys
from importlib.machinery import PathFinder
class Without:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name in {names!r} else PathFinder.find_spec(name, path, target)
sys.meta_path = [finder for finder in sys.meta_path if finder is not PathFinder] + [Without]
"""


def made(tmp_path: Path, python: str, site: str = "") -> subprocess.CompletedProcess[str]:
    """The recipe of the Makefile, run by make in a folder of its own; site: what that Python runs
    when it starts.
    """
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    text = MAKEFILE.read_text(encoding="utf-8")
    recipe = re.search(r"^define fresh_venv\n.*?^endef\n", text, re.DOTALL | re.MULTILINE)
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith(("SHELL", ".SHELLFLAGS")))
    (tmp_path / "Makefile").write_text(f"{head}{recipe[0]}\nsetup:\n\t$(call fresh_venv,.venv)\n", encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(site, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "MAKEFLAGS": ""}
    command = ["make", "setup", f"PYTHON={python}"]
    return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("site", "line"),
    [
        (OTHER_VERSION, f"Python 3.11 or 3.12 is needed, {sys.executable} is 3.9: make setup PYTHON=python3.11"),
        # A version that is wrong is said first: another module would not help.
        (
            WITHOUT.format(names=("ensurepip",)) + OTHER_VERSION,
            f"Python 3.11 or 3.12 is needed, {sys.executable} is 3.9: ",
        ),
        (
            WITHOUT.format(names=("ensurepip",)),
            f"{sys.executable} lacks ensurepip; on Debian and Ubuntu: apt-get install python3.1",
        ),
        (
            WITHOUT.format(names=("venv", "ensurepip")),
            f"{sys.executable} lacks venv and ensurepip; on Debian and Ubuntu: ",
        ),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(tmp_path: Path, site: str, line: str) -> None:
    done = made(tmp_path, sys.executable, site)
    assert done.returncode != 0
    assert done.stderr.startswith(line), done.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    done = made(tmp_path, "python3.99")
    assert done.returncode != 0
    assert "python3.99 is not installed; Python 3.11 or 3.12 is needed: make setup PYTHON=python3.11" in done.stderr


def test_an_environment_of_another_python_is_named(tmp_path: Path) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("pip", "python"):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (programs / name).chmod(0o755)
    done = made(tmp_path, sys.executable, OTHER_VERSION)
    assert done.returncode != 0
    assert "Python 3.11 or 3.12 is needed, .venv was made with 3.9: make clean, then make setup" in done.stderr


def test_a_python_that_can_makes_an_environment(tmp_path: Path) -> None:
    done = made(tmp_path, sys.executable)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".venv" / "bin" / "pip").exists()
