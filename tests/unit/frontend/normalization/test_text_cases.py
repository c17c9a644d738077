"""Readings of written forms, case by case: `text_cases.json` holds them, docs/text.md shows the
same ones.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.frontend.models import ROOT, TINY, analyzer

CASES: list[dict[str, str]] = json.loads((Path(__file__).parent / "text_cases.json").read_text(encoding="utf-8"))


def rows(cases: list[dict[str, str]]) -> list[str]:
    """The rows of the table in docs/text.md."""

    def cell(text: str) -> str:
        return "`` " + text.replace("\n", "⏎").replace("|", "\\|") + " ``"

    return [
        f"| {case['kind']} | {cell(case['text'])} | {case.get('language', '')} | {cell(case['spoken'])} | "
        f"{case.get('accepted', '')} |"
        for case in cases
    ]


@pytest.mark.parametrize("case", CASES, ids=[f"{case['kind']}: {case['text'][:30]!a}" for case in CASES])
def test_a_written_form_is_read_as_the_table_says(case: dict[str, Any]) -> None:
    assert analyzer(TINY).normalise(case["text"], case.get("language", "")) == case["spoken"]


def test_the_page_shows_these_cases_and_no_others() -> None:
    page = (ROOT / "docs/text.md").read_text(encoding="utf-8")
    table = [line for line in page.split("| kind | written |")[1].splitlines()[2:] if line.startswith("|")]
    assert table == rows(CASES)


def test_there_are_enough_of_every_kind() -> None:
    assert len(CASES) >= 60
    assert len({case["text"] + case.get("language", "") for case in CASES}) == len(CASES)
    assert {"zh" if "zh" in case["kind"] else "en" for case in CASES} == {"zh", "en"}
