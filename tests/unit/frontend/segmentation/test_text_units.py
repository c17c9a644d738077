"""Where streamed text is cut; and words that are emitted before the sentence is complete."""

import pytest

from services.frontend.segmentation.text_units import Units, runs_of


def units_of(text: str, longest: int = 400) -> list[str]:
    units = Units(longest)
    return [*units.feed(text), units.finish()]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("One. Two", ["One.", " Two"]),
        ("pi is 3.14 or so", ["pi is 3.14 or so"]),
        ("Dr. Smith met J. Doe. Then", ["Dr. Smith met J. Doe.", " Then"]),
        ("see https://a.b/c?d=1;e now? Yes", ["see https://a.b/c?d=1;e now?", " Yes"]),
        ("Wait... what?! Go", ["Wait... what?!", " Go"]),
        ('He said "go." Then', ['He said "go."', " Then"]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("他说：“走。”然后", ["他说：“走。”", "然后"]),
        ("完.好", ["完.", "好"]),
        ("", [""]),
    ],
)
def test_units(text: str, units: list[str]) -> None:
    assert units_of(text) == units


def test_an_end_waits_for_the_character_that_settles_it() -> None:
    units = Units(400)
    assert list(units.feed("It costs 3.")) == []
    assert list(units.feed("5 now.")) == []
    assert list(units.feed(" ")) == ["It costs 3.5 now."]
    assert units.finish() == " "


def test_text_without_an_end_is_cut_at_a_blank_a_comma_or_anywhere() -> None:
    assert units_of("aaa bbb ccc", 9) == ["aaa bbb", " ccc"]
    assert units_of("一二三，四五六", 5) == ["一二三，", "四五六"]
    assert units_of("x" * 12, 5) == ["xxxxx", "xxxxx", "xx"]


def test_runs_join_units_up_to_the_limit() -> None:
    assert list(runs_of("A b. C d. E f. G", 9)) == ["A b. C d.", " E f. G"]
    assert list(runs_of("short", 9)) == ["short"]
    assert list(runs_of("", 9)) == []


@pytest.mark.parametrize(
    ("text", "least", "words", "rest"),
    [
        ("one two three fo", 3, "one two three ", "fo"),
        ("one two three fo", 4, "", "one two three fo"),
        ("one two three ", 3, "one two three ", ""),
        ("今天天气很好，我", 4, "今天天气很好，", "我"),
        ("今天天气很好我", 4, "", "今天天气很好我"),
        ("one two three [pause 3", 3, "one two three ", "[pause 3"),
        ("word", 1, "", "word"),
        ("", 1, "", ""),
    ],
)
def test_complete_words_leave_and_the_rest_waits(text: str, least: int, words: str, rest: str) -> None:
    units = Units(400)
    assert list(units.feed(text)) == []
    assert units.finish_words(least) == words
    assert units.waiting == rest
    assert units.finish_words(least) == "", "what was cut cannot be cut again"
    assert list(units.feed(" end. More")) == [rest + " end."]
    assert units.finish() == " More"
