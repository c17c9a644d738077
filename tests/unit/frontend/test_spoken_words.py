"""Words and the text ids that say them."""

from pathlib import Path

import pytest

from cosyserve.model_directory import ModelDirectory
from services.frontend.phonemes.symbols import BLANK, MARKS
from services.frontend.phonemes.tokenizer import PhonemeTokenizer
from services.frontend.text_tokenizer import read_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> PhonemeTokenizer:
    return PhonemeTokenizer(ModelDirectory(Path("models/demo")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It works.", ["It", "works"]),
        ("Well, it costs $12.50: 42 apples!", ["Well", "it", "costs", "twelve", "dollars", "fifty", "cents", "forty", "two", "apples"]),
        ("The U.S. Army - e.g. here...", ["The", "U.S", "Army", "for", "example", "here"]),
        ("don't 'quote' it", ["don't", "'quote'", "it"]),
    ],
)
def test_words_are_told_as_they_are_spoken(tokenizer: PhonemeTokenizer, text: str, words: list[str]) -> None:
    found = tokenizer.spoken_words(text)
    assert [word for word, _, _ in found] == words


@pytest.mark.parametrize("text", ["It works.", "Well, it costs $12.50: 42 apples!", "The U.S. Army - e.g. here... yes; no?", "A", "", "…"])
def test_their_ids_are_all_sounds_and_cover_them_all(tokenizer: PhonemeTokenizer, text: str) -> None:
    names = {tokenizer.id_of(symbol): symbol for symbol in MARKS + BLANK}
    ids, covered = tokenizer.encode(text), set[int]()
    for _, first, count in tokenizer.spoken_words(text):
        places = range(first, first + count)
        assert count >= 1
        assert covered.isdisjoint(places)
        covered.update(places)
    rest = [place for place in range(1, len(ids)) if place not in covered]
    assert all(ids[place] in names for place in rest)
    assert max(covered, default=0) < max(len(ids), 1)


def test_byte_pairs_tell_no_words() -> None:
    assert read_tokenizer(ModelDirectory(Path("tests/golden/tiny"))).spoken_words("It works.") == []
