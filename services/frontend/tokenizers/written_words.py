"""The words of a text that is tokenised as it is written, each with its ids, so that sound can be
aligned with them.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from services.frontend.tokenizers.phonemes.reading import read_words, unread
from services.frontend.tokenizers.placeholders import MARKUP

Offsets = Sequence[tuple[int, int]]
"""For each id the characters of the text that it expresses: the first one and the one behind."""
SpokenWords = list[tuple[str, int, int]]
"""As `Tokenizer.spoken_words` gives them."""
_CHUNK = re.compile(r"\S+")
_PLAIN = re.compile(r"([A-Za-z]+(?:'[A-Za-z]+)*)[,!?;:]*")
"""One word, which needs no further reading."""


def written_words(text: str, offsets: Offsets, marks: Sequence[str | None]) -> SpokenWords:
    """marks: for each id the mark that it is (`[breath]`, `[HH]`), None for written text.

    Marks of a pronunciation that stand together are one word, between slashes (`/HH AH0 L OW1/`);
    other marks are none. A stretch between two blanks that has no English reading is one word as it
    is written; words of one stretch ("well-known") share its ids.
    """
    words: SpokenWords = []
    for first, behind in _runs(offsets, marks):
        if marks[first] is None:
            words += _of_text(text, offsets, first, behind)
        elif sounds := [mark.strip("[]") for mark in marks[first:behind] if mark and _is_sound(mark)]:
            words.append((f"/{' '.join(sounds)}/", first, behind - first))
    return words


def _is_sound(mark: str) -> bool:
    return mark.startswith("[") and mark not in MARKUP


def _runs(offsets: Offsets, marks: Sequence[str | None]) -> Iterator[tuple[int, int]]:
    """Ranges of ids that are all text or all marks that stand together."""
    borders = [place + 1 for place, (one, other) in enumerate(pairwise(marks)) if _kind(one) != _kind(other)]
    yield from pairwise([0, *borders, len(marks)] if marks else [])


def _kind(mark: str | None) -> int:
    return 0 if mark is None else 1 + _is_sound(mark)


def _of_text(text: str, offsets: Offsets, first: int, behind: int) -> Iterator[tuple[str, int, int]]:
    begin = place = first
    end = offsets[behind - 1][1]
    for chunk in _CHUNK.finditer(text, offsets[first][0], end):
        while offsets[place][1] <= chunk.start():
            place += 1
        begin = place
        while place < behind and offsets[place][0] < chunk.end():
            place += 1
        for word in _words_of(chunk[0]):
            yield word, begin, place - begin
        # An id may express the end of one stretch and the blank before the next.
        place = max(begin, place - 1)


def _words_of(stretch: str) -> list[str]:
    if plain := _PLAIN.fullmatch(stretch):
        return [plain[1]]
    return [stretch] if unread(stretch) else [word.text for word in read_words(stretch)]
