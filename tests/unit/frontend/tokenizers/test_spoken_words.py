"""Words and their text ids."""

import pytest

from services.frontend.analysis.analyzer import Analyzer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.tokenizers.phonemes.symbols import BLANK, MARKS
from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer
from tests.unit.frontend import models


@pytest.fixture
def tokenizer() -> PhonemeTokenizer:
    return models.phonemes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It works.", ["It", "works"]),
        (
            "Well, it costs $12.50: 42 apples!",
            ["Well", "it", "costs", "twelve", "dollars", "fifty", "cents", "forty", "two", "apples"],
        ),
        ("The U.S. Army - e.g. here...", ["The", "U.S", "Army", "for", "example", "here"]),
        ("don't 'quote' it", ["don't", "'quote'", "it"]),
    ],
)
def test_words_are_reported_as_they_are_spoken(tokenizer: PhonemeTokenizer, text: str, words: list[str]) -> None:
    result = tokenizer.spoken_words(text)
    assert [word for word, _, _ in result] == words


@pytest.mark.parametrize(
    ("text", "allowed", "words"),
    [
        ("Buy [laughter] <strong>Nike</strong> shoes.", False, ["Buy", "/nˈIki/", "shoes"]),
        ("Nike, New York!", False, ["/nˈIki/", "/nˈu/", "/jˈɔɹk/"]),
        ("Go <|endofprompt|> there.", True, ["Go", "there"]),
        ("Go <|endofprompt|> there.", False, ["Go", "there"]),
    ],
)
def test_words_of_an_analysed_sentence_cover_its_ids(
    tokenizer: PhonemeTokenizer, text: str, allowed: bool, words: list[str]
) -> None:
    analyzer = Analyzer(Normalizer(None), tokenizer)
    given = {"Nike": "/nˈIki/", "New York": "/nˈu jˈɔɹk/"}
    (sentence,) = analyzer.sentences(text, "", analyzer.reading("", allow_control_tokens=allowed, pronunciations=given))
    assert [word for word, _, _ in sentence.words] == words
    names = {tokenizer.id_of(symbol) for symbol in MARKS + BLANK}
    covered = {place for _, first, count in sentence.words for place in range(first, first + count)}
    sounding = {place for place, number in enumerate(sentence.token_ids) if place and number not in names}
    assert covered == sounding


@pytest.mark.parametrize(
    "text", ["It works.", "Well, it costs $12.50: 42 apples!", "The U.S. Army - e.g. here... yes; no?", "A", "", "…"]
)
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
    assert models.tokenizer(models.TINY).spoken_words("It works.") == []
