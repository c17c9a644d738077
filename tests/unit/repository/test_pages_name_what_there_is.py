"""Settings and command lines that the pages of engines and doctor name are known to the services
and to the command line.
"""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from cosyserve.__main__ import parser
from tests.unit.repository.test_images import SETTINGS

ROOT = Path(__file__).parents[3]
PAGES = ("docs/engines.md", "docs/doctor.md")
KNOWN = {
    f"COSYSERVE_{service.upper()}_{field.name.upper()}"
    for service, settings in SETTINGS.items()
    for field in dataclasses.fields(settings)
}


@pytest.mark.parametrize("page", PAGES)
def test_settings_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"COSYSERVE_(?:FRONTEND|LLM|TOKEN2WAV|ORCHESTRATOR)_[A-Z0-9_]+", text))
    assert named <= KNOWN


@pytest.mark.parametrize("page", PAGES)
def test_lines_are_understood(page: str) -> None:
    lines = re.findall(
        r"(?:`|^)cosyserve ((?:start|doctor|info)\b[^`\n|]*)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    assert lines
    for line in lines:
        assert parser().parse_args(shlex.split(line)).command == line.split()[0]


def test_three_questions_have_one_file_each() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| \[([\w/.]+)\]\(\.\./\2\) \|$", page, re.MULTILINE)
    assert [question for question, _ in rows] == ["the next hop decided", "a voice stored", "a failed stage replaced"]
    assert all((ROOT / path).is_file() for _, path in rows)
