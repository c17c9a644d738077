"""What became of a short reply: whether all its words were spoken, and once.

Two recognisers have to agree before a word counts as left out: a single one mishears short words,
names and letters now and then. The second witness are the times of the words: what is not spoken
has none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cosyserve.client.types import WordTime
from tools.quality.words.alignment import Differences, WordErrors, align, differences
from tools.quality.words.spelling import words_of

SHORTEST_SECONDS = 0.05
"""A word of FEWEST_LETTERS that is over sooner was not spoken."""
FEWEST_LETTERS = 2


@dataclass(frozen=True)
class Reply:
    """One reply as it was heard. left_out, misheard: words that every ear missed, or took for
    another one; too_short: words by their times; said_twice: words of the text that every ear heard
    once more than it has them. errors, heard: by ear."""

    number: int
    text: str
    heard: Mapping[str, str]
    errors: Mapping[str, WordErrors]
    left_out: tuple[str, ...]
    misheard: tuple[str, ...]
    too_short: tuple[str, ...]
    said_twice: tuple[str, ...]

    @property
    def lost(self) -> bool:
        return bool(self.left_out or self.too_short)

    @property
    def remarkable(self) -> bool:
        return bool(self.lost or self.misheard or self.said_twice)


def judged(number: int, text: str, heard: Mapping[str, str], words: Sequence[WordTime]) -> Reply:
    """heard: by ear, at least one. words: with the server's times at speed 1.0, none where it
    reports none.
    """
    reference = words_of(text)
    differences_by_ear = {ear: differences(reference, words_of(said)) for ear, said in heard.items()}
    left_out = frozenset.intersection(*(each.left_out for each in differences_by_ear.values()))
    missed = frozenset.intersection(*(each.left_out | each.misheard for each in differences_by_ear.values()))
    return Reply(
        number,
        text,
        dict(heard),
        {ear: align(reference, words_of(said)).errors for ear, said in heard.items()},
        tuple(reference[place] for place in sorted(left_out)),
        tuple(reference[place] for place in sorted(missed - left_out)),
        tuple(
            word.text
            for word in words
            if _letters(word.text) >= FEWEST_LETTERS and word.end - word.start < SHORTEST_SECONDS - 1e-6
        ),
        _twice(set(reference), list(differences_by_ear.values())),
    )


def _twice(reference: set[str], differences_by_ear: Sequence[Differences]) -> tuple[str, ...]:
    added = [Counter(each.added) for each in differences_by_ear]
    return tuple(sorted(word for word in reference if all(count[word] for count in added)))


def _letters(word: str) -> int:
    return sum(letter.isalpha() for letter in word)
