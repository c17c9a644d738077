"""The judge of the readings: what it takes for the same and what not."""

from pathlib import Path

import pytest

from tools.quality.readings import Row, judge_of, judged, page_with, read_rows, section
from tools.quality.words.reading_judges import MOST, folded, spoken_forms


@pytest.mark.parametrize(
    ("line", "forms"),
    [
        ("two | {a/an} one", ["two", "a one", "an one"]),
        ("八点{五零元/五/}", ["八点五零元", "八点五", "八点"]),
        ("to {the /}end", ["to the end", "to end"]),
        ("say /nwˈɪn/ now", ["say /nwˈɪn/ now"]),
    ],
)
def test_a_line_of_spoken_forms(line: str, forms: list[str]) -> None:
    assert spoken_forms(line) == forms


@pytest.mark.parametrize("line", ["", "a | ", "{a/b", "a}b", "{a/{b/c}}", "{a/b}" * 13])
def test_a_mistake_in_a_line_is_told(line: str) -> None:
    with pytest.raises(ValueError, match=str(MOST) if len(line) > 20 else "form|braces"):
        spoken_forms(line)


def test_sounds_are_folded() -> None:
    assert folded("bˈʌɾɚ".replace("ɚ", "əɹ")) == folded("bˈʌtɪɹ") == "bʌtəɹ"
    assert folded("sˈɪt") != folded("sˈɛt")
    assert folded("sˈɪt") != folded("sət")


@pytest.mark.parametrize(
    ("text", "spoken", "right"),
    [
        ("It has 3 parts.", "it has three parts", True),
        ("It has 3 parts.", "it has four parts", False),
        ("Go to the office, to a house.", "go to the office to a house", True),
        ("I said to. Then a, b.", "I said to then a B", True),
        ("A B C of it", "A B C of it", True),
        ("The API works.", "the {A P I/app} works", True),
        ("U's and V's", "U's and V's", True),
        ("better luck", "/bˈɛtɪɹ/ luck", True),
        ("better luck", "/bˈɪtəɹ/ luck", False),
        ("Two words", "two", False),
    ],
)
def test_english_is_judged_by_sound(text: str, spoken: str, right: bool) -> None:
    assert judge_of("english").judge(text, spoken).right is right


@pytest.mark.parametrize(
    ("text", "spoken", "right"),
    [
        ("我有3个，OK。", "我有三个ok", True),
        ("二〇二四年", "二零二四年", True),
        ("我有3个。", "我有{四/五}个", False),
        ("我有2个。", "我有{两/二}个", True),
    ],
)
def test_chinese_is_judged_by_characters(text: str, spoken: str, right: bool) -> None:
    assert judge_of("chinese").judge(text, spoken).right is right


def test_a_malformed_table_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "texts.tsv"
    for lines, message in (
        ("text\n", "line 1"),
        ("class\ttext\tspoken\na\tb\n", "line 2"),
        ("class\ttext\tspoken\n" + "a\tb\tc\n" * 2, "twice"),
    ):
        path.write_text(lines, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            read_rows(path)


def test_the_page_gets_the_figures_and_the_wrong_ones() -> None:
    read = judged([Row("a", "我有3个。", "我有三个"), Row("a", "我有5个。", "我有六个")], "chinese")
    marks = "<!-- chinese: written by python -m tools.quality.readings --write -->", "<!-- chinese: end -->"
    page = page_with(f"x\n{marks[0]}\nold\n{marks[1]}\ny", "chinese", section("chinese", read))
    assert "## Chinese: 1 of 2 wrong" in page
    assert "| a | `` 我有5个。 `` | `` 我有五个。 `` | `` 我有六个 `` |" in page
    assert "我有3个" not in page
    assert "old" not in page
    with pytest.raises(ValueError, match="english"):
        page_with(page, "english", [])
