"""A letter is set apart from a word that would run into it, and from no other."""

import pytest

from services.frontend.tokenizers.phonemes.symbols import SYMBOLS
from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer
from tests.unit.frontend import models


@pytest.fixture(scope="module")
def tokenizer() -> PhonemeTokenizer:
    return models.phonemes()


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("Open page E.", "ˈOpᵊn pˈAʤ, ˈi."),
        ("Find gate F now.", "fˈInd ɡˈAt, ˈɛf nˈW."),
        ("Find gate C now.", "fˈInd ɡˈAt, sˈi nˈW."),
        ("Bus A, please.", "bˈʌs, ˈA, plˈiz."),
        ("Seat 12 A.", "sˈit twˈɛlv, ˈA."),
    ],
)
def test_a_letter_behind_a_consonant_has_a_pause_before_it(
    tokenizer: PhonemeTokenizer, text: str, phonemes: str
) -> None:
    assert tokenizer.phonemes(text) == phonemes


@pytest.mark.parametrize(
    "text",
    [
        "Plan A.",
        "Row F.",
        "Vitamin D.",
        "Gate D.",
        "It's A or B.",
        "As X said.",
        "The best I can do.",
        "The best a man can get.",
        "He left a note.",
        "Page e.",
        "A B C.",
    ],
)
def test_other_words_have_none(tokenizer: PhonemeTokenizer, text: str) -> None:
    assert "," not in tokenizer.phonemes(text)


def test_a_mark_is_kept_and_words_are_counted_alike(tokenizer: PhonemeTokenizer) -> None:
    assert tokenizer.phonemes("Stage; E.") == "stˈAʤ; ˈi."
    words = tokenizer.spoken_words("Open page E now.")
    assert [word for word, _, _ in words] == ["Open", "page", "E", "now"]
    ids = tokenizer.encode("Open page E now.")
    spoken = ["".join(SYMBOLS[number] for number in ids[first : first + count]) for _, first, count in words]
    assert spoken == ["ˈOpᵊn", "pˈAʤ", "ˈi", "nˈW"]


@pytest.mark.parametrize("text", ["Open page E now, or gate F at once.", "My grade was A. Take bus A."])
def test_a_text_in_pieces_pauses_at_the_same_places(tokenizer: PhonemeTokenizer, text: str) -> None:
    encoder = tokenizer.incremental_encoder()
    words = text.split(" ")
    ids = list(encoder.opening)
    for word in words[:-1]:
        ids += encoder.feed(f"{word} ").ids
    assert ids + encoder.finish(words[-1]).ids == tokenizer.encode(text)
