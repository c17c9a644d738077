"""The commands that the pages show, run as they stand against a running system."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
PLAYED = ("aplay", "--play")
"""Lines that need a player and a sound card."""


def commands(page: str, program: str) -> list[str]:
    """Lines of the page's shell blocks that begin with `program`."""
    lines = [line for block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) for line in block.splitlines()]
    return [line for line in lines if line.startswith(program) and not any(word in line for word in PLAYED)]


def run(command: str, endpoint: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", command.replace("127.0.0.1:50051", endpoint)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("command", commands("docs/protocol.md", "grpcurl"))
def test_grpcurl_lines_of_the_protocol_page(command: str, endpoint: str, tmp_path: Path) -> None:
    answer = run(command, endpoint, tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip()


@pytest.mark.parametrize("command", commands("README.md", ".venv/bin/cosyserve"))
def test_cosyserve_lines_of_the_readme(command: str, endpoint: str, tmp_path: Path) -> None:
    answer = run(f"{command.removeprefix('.venv/bin/')} --server {endpoint}", endpoint, tmp_path)
    assert answer.returncode == 0, answer.stderr
    for file in re.findall(r"-o (\S+\.wav)", command):
        assert (tmp_path / file).stat().st_size > 10_000
