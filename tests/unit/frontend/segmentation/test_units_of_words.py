"""Words that are emitted before the sentence is complete."""

import pytest

from services.frontend.segmentation.text_units import Units


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
