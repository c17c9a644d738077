"""How words are said: by the dictionary, by letters, by parts, by rules; and what is no English."""

import pytest

from services.orchestrator.aligning.pronunciation import PHONES, Spoken, pronounce
from services.orchestrator.aligning.untimed import Reason, Untimed

WORDS = {
    "let's": "L EH T S",
    "serve": "S ER V",
    "cosy": "K OW Z IY",
    "dogs": "D AO G Z",
    "nasa": "N AE S AH",
    "x": "EH K S",
}


@pytest.mark.parametrize(
    ("word", "spoken"),
    [
        ("Let's", Spoken(entry="let's")),
        ("dogs'", Spoken(entry="dogs")),
        ("NASA", Spoken(entry="nasa")),
        ("serve's", Spoken(phones=("S", "ER", "V", "Z"))),
        ("cosyserve", Spoken(phones=("K", "OW", "Z", "IY", "S", "ER", "V"))),
        ("GPU", Spoken(phones=("JH", "IY", "P", "IY", "Y", "UW"))),
        ("www", Spoken(phones=("D", "AH", "B", "AH", "L", "Y", "UW") * 3)),
        ("U.S", Spoken(phones=("Y", "UW", "EH", "S"))),
        ("/HH AH0 L OW1/", Spoken(phones=("HH", "AH", "L", "OW"))),
        ("phillate", Spoken(phones=("F", "IH", "L", "AE", "T"), guessed=True)),
    ],
)
def test_a_word_is_said(word: str, spoken: Spoken) -> None:
    assert pronounce(word, WORDS.get) == spoken


@pytest.mark.parametrize("word", ["你好", "/n ǐ/", "//", "42", "größer", "'", "."])
def test_what_is_no_english_is_refused(word: str) -> None:
    with pytest.raises(Untimed) as refused:
        pronounce(word, WORDS.get)
    assert refused.value.reason is Reason.LANGUAGE
    assert word not in str(refused.value)


def test_every_letter_and_any_letters_have_phones_of_the_model() -> None:
    for word in ("abcdefghijklm", "nopqrstuvwxyz", "tionsionture", "oughaughschdge"):
        spoken = pronounce(word, lambda _: None)
        assert spoken.guessed
        assert PHONES.issuperset(spoken.phones)
    assert PHONES.issuperset(pronounce("ABCDEFGHIJKLMNOPQRSTUVWXYZ", lambda _: None).phones)
