"""The SSML section of docs/text.md is correct."""

import re
from pathlib import Path

import pytest

from services.frontend.ssml import elements
from services.frontend.ssml.elements import RATES, STRENGTHS
from services.frontend.ssml.reader import Reader
from services.frontend.ssml.say_as.values import FORMATS, KINDS, value_of

PAGE = (
    (Path(__file__).parents[4] / "docs" / "text.md")
    .read_text(encoding="utf-8")
    .partition("## SSML\n")[2]
    .partition("\n## ")[0]
)
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| `")]
VALUES = [row for row in ROWS if len(row) == 4 and row[1] != "read"]


def test_all_elements_and_kinds_are_there() -> None:
    named = {name for row in ROWS if len(row) == 3 for name in re.findall("`([a-z-]+)`", row[0])}
    assert named == set(elements.READ)
    assert [name for row in VALUES for name in re.findall("`([a-z-]{4,})`", row[0]) if name != "format"] == list(KINDS)
    assert re.findall("`([ymd]{1,3})`", "".join(row[0] for row in VALUES))[: len(FORMATS)] == list(FORMATS)


def test_numbers_are_those_of_the_code() -> None:
    assert {
        name: float(rate) for name, rate in re.findall(r"`(x-slow|slow|fast|x-fast)` ([0-9.]+)", PAGE)
    }.items() <= RATES.items()
    strengths = re.findall(r"`(none|x-weak|weak|medium|strong|x-strong)`(?: \(default\))? ([0-9]+)", PAGE)
    assert {name: int(milliseconds) for name, milliseconds in strengths} == STRENGTHS
    for number in (elements.LONGEST_DOCUMENT, elements.DEEPEST, elements.LONGEST_TAG, elements.LONGEST_CONTENT):
        assert f"{number:,}" in PAGE


@pytest.mark.parametrize("row", VALUES, ids=lambda row: row[0][:12])
def test_values_are_read_as_the_page_says(row: list[str]) -> None:
    kind = re.findall("`([a-z-]+)`", row[0])[0]
    value = value_of(KINDS[kind], "", row[1])
    assert value is not None
    assert [value.words("en", None), value.words("zh", None)] == row[2:]


def test_the_example_is_a_document() -> None:
    reader = Reader(1.0, None)
    assert [*reader.feed(PAGE.partition("```xml\n")[2].partition("```")[0]), *reader.finish()]
    assert len(reader.inserted) == 2
