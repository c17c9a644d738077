"""Written forms have their usual readings, except those that docs/readings.md lists."""

from functools import cache

import pytest

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
