"""What counts as a word error, and what is only another way of writing."""

import pytest

from tools.quality.words.alignment import Alignment, WordErrors, align
from tools.quality.words.spelling import words_of

EQUAL = [
    ("Don't you see? It's the neighbour's.", "do not you see it is the neighbour's"),
    ("The colour of the theatre is grey, okay?", "the color of the theater is gray OK"),
    ("Room nine nine eight.", "Room 998"),
    ("Peter was born on the tenth of November, nineteen oh five.", "Peter was born on the 10th of November 1905."),
    ("It is six hundred and forty seven.", "It is 647."),
    ("More than ninety three thousand people", "more than 93,000 people"),
    ("two thousand and five, two thousand five hundred and one", "2005, 2,501"),
    ("closes at four ten", "closes at 4:10"),
    ("at three o'clock", "at 3:00"),
    ("Twenty eight plus twenty eight equals fifty six.", "28 + 28 = 56"),
    ("seventy one percent, three hundred and ninety eight dollars", "71%, $398"),
    ("on the twenty first and the second", "on the 21st and the 2nd"),
    ("Twenty twenty two", "2022"),
    ("On Friday, October thirteenth.", "on Friday October 13"),
    ("I can't, cannot and won't.", "I can not, can't and will not"),
    ("Anyone?", "any one"),
    ("Ugh! Ah. Hmm.", "Ugg, ahh, hm"),
    ("Mm-hmm. Whoa!", "Mhm, woah"),
    ("seat twelve B", "seat 12B"),
    ("gate C five", "gate C5"),
]
DIFFERENT = [
    ("their house", "there house"),
    ("seventeen", "seventy"),
    ("six hundred", "six hundred and one"),
    ("the fourth floor", "the four floor"),
    ("he walked toward it", "he walked towards it"),
    ("it was one", "it was none"),
    ("I do", "I don't"),
    ("ugh", "uh"),
    ("ah", "oh"),
    ("hm", "him"),
    ("mm", "hm"),
    ("page E", "page he"),
]


@pytest.mark.parametrize(
    ("one", "other", "equal"), [(*pair, True) for pair in EQUAL] + [(*pair, False) for pair in DIFFERENT]
)
def test_two_writings_of_the_same_words_are_equal_and_other_words_are_not(one: str, other: str, equal: bool) -> None:
    assert (words_of(one) == words_of(other)) is equal


def _aligned(reference: str, heard: str) -> Alignment:
    return align(reference.split(), heard.split())


@pytest.mark.parametrize(
    ("reference", "heard", "errors"),
    [
        ("a b c d", "a b c d", WordErrors(4, 0, 0, 0)),
        ("a b c d", "a x c d", WordErrors(4, 1, 0, 0)),
        ("gate c please", "gate see please", WordErrors(3, 0, 0, 0)),
        ("phew i see", "few i see", WordErrors(3, 0, 0, 0)),
        ("gate see", "gate sea", WordErrors(2, 1, 0, 0)),
        ("page e", "page he", WordErrors(2, 1, 0, 0)),
        ("a b c d", "a c d", WordErrors(4, 0, 0, 1)),
        ("a b c d", "a b y c d z", WordErrors(4, 0, 2, 0)),
        ("a b c d", "", WordErrors(4, 0, 0, 4)),
        ("", "a b", WordErrors(0, 0, 2, 0)),
        ("some one may be late", "someone maybe late", WordErrors(5, 0, 0, 0)),
        ("someone came", "some one came", WordErrors(2, 0, 0, 0)),
    ],
)
def test_errors_are_counted_by_kind(reference: str, heard: str, errors: WordErrors) -> None:
    assert _aligned(reference, heard).errors == errors


def test_what_is_added_or_missing_at_the_end_is_counted_by_itself() -> None:
    assert _aligned("go home now", "go home now now now").added_at_end == 2
    assert [_aligned(*pair).missing_at_end for pair in (("well go home now", "go home"), ("a b c d", ""))] == [1, 4]
    assert _aligned("a b c d", "b c d") == Alignment(WordErrors(4, 0, 0, 1), 0, 0)


def test_rates_add_up_over_sentences() -> None:
    total = _aligned("a b c", "a b").errors + _aligned("d e f g h i j", "d e x g h i j k").errors
    assert (total, total.rate) == (WordErrors(10, 1, 1, 1), pytest.approx(0.3))
