"""Word times are compared where both sides wrote the same word."""

import pytest

from cosyserve.utterance import WordTime
from tools.quality.recognise import HeardWord
from tools.quality.word_times import compare, same_words


def test_only_words_that_both_have_are_compared() -> None:
    told = [WordTime(text, at, at + 0.2, 0) for at, text in enumerate(("The", "old", "man's", "hat"))]
    heard = [HeardWord(text, at + 0.1, at + 0.2) for at, text in ((0, "the"), (2, "Man's"), (3, "cat,"), (4, "hat."))]
    pairs = same_words(told, heard)
    assert [(ours.text, theirs.text) for ours, theirs in pairs] == [("The", "the"), ("man's", "Man's"), ("hat", "hat.")]


def test_bias_is_signed_and_the_rest_is_not() -> None:
    errors = (-0.1, -0.1, -0.1, 0.1)
    pairs = [(WordTime("a", 1.0 + error, 2.0, 0), HeardWord("a", 1.0, 2.0)) for error in errors]
    start, end = compare(pairs)
    assert (start.words, start.bias, start.median, start.ninety_percent) == (4, -0.05, 0.1, 0.1)
    assert start.spread == pytest.approx(0.12)
    assert (end.bias, end.median, end.ninety_percent, end.spread) == (0, 0, 0, 0)
