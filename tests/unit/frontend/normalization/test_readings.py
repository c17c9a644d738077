"""Written forms have their usual readings, except those that docs/readings.md lists; case by case,
`text_cases.json` holds them and docs/text.md shows the same ones.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.unit.frontend.models import ROOT, TINY, analyzer
from tools.quality.readings import PAGE, TEXTS, ReadText, judged, page_with, read_rows, section

MOST_WRONG = 0.03
LANGUAGES = list(TEXTS)


@cache
def readings(language: str) -> list[ReadText]:
    return judged(read_rows(TEXTS[language]), language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_at_most_three_in_a_hundred_are_read_wrong(language: str) -> None:
    read = readings(language)
    wrong = [f"{one.row.text!r} is read {one.said!r}" for one in read if not one.right]
    assert len(wrong) <= MOST_WRONG * len(read), "\n".join(wrong)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_lists_every_wrong_one(language: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, language, section(language, readings(language)))


@pytest.mark.parametrize("language", LANGUAGES)
def test_there_are_texts_of_every_class(language: str) -> None:
    rows = read_rows(TEXTS[language])
    assert len(rows) >= 100
    assert len({row.kind for row in rows}) >= 20


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
