"""The spans of a text that a grammar must see: written forms (numbers, signs, abbreviations) and a
few words around them.

The grammars leave plain words unchanged and take 50 to 100 microseconds per character for it, so
the other text bypasses them.
"""

import re
from collections.abc import Iterator
from itertools import groupby

from services.frontend.text.language import CHINESE

_WORD = re.compile(r"\S+\s*|\s+")
_WRITTEN = re.compile(
    r"""[\d$€£¥￥%&@+=\#°²³¹¼-¾^*/\\~<>|_\u2100-\u218f\u3300-\u33ff] | [A-Za-z]\.[A-Za-z]
      """,
    re.VERBOSE,
)
_AROUND = 3
"""Words on each side of a written form that may decide its reading."""
_BEFORE, _BEHIND = 3, 5
"""Characters around the digits of a Chinese clause that may decide their reading."""
_MOST_GRAMMAR_CHARACTERS = 64
"""Characters passed to a grammar at once: 200 cost three times as much per character and hold the
GIL for 60 ms.
"""
_CLAUSE = re.compile(r"[^，。！？；、\n]*[，。！？；、\n]*")
_JOINS = ".,:/-"
"""Signs inside a number, a time, a date."""
_NUMERAL = re.compile(r"\d")


def split_for_grammar(text: str, language: str) -> Iterator[tuple[bool, str]]:
    """Split `text` into pieces, each with whether the grammar must see it; joined they are the
    text.
    """
    pieces = _chinese(text) if language == CHINESE else _english(text)
    for is_written_form, group in groupby(pieces, key=lambda piece: piece[0]):
        window = "".join(piece for _, piece in group)
        yield from ((is_written_form, part) for part in (_bounded(window) if is_written_form else (window,)))


def _bounded(window: str) -> Iterator[str]:
    """`window` in parts of at most 64 characters: cut after a blank between two words without a
    written form, else after any blank, else before a digit that follows a sign which does not join
    numbers, else between two letters that are not Latin, else anywhere.
    """
    while len(window) > _MOST_GRAMMAR_CHARACTERS:
        head = window[: _MOST_GRAMMAR_CHARACTERS + 1]
        words = list(_WORD.finditer(head))
        # The last word of the head may continue after it.
        blanks = [(words[at].end(), words[at][0] + words[at + 1][0]) for at in range(len(words) - 1)]
        plain = max((place for place, around in blanks if not _WRITTEN.search(around)), default=0)
        blank = max((place for place, _ in blanks), default=0)
        places = range(1, _MOST_GRAMMAR_CHARACTERS + 1)
        edge = max(
            (at for at in places if head[at].isdigit() and not head[at - 1].isalnum() and head[at - 1] not in _JOINS),
            default=0,
        )
        between = max((at for at in places if not head[at].isascii() and not head[at - 1].isascii()), default=0)
        cut = plain if plain > _MOST_GRAMMAR_CHARACTERS // 4 else blank or edge or between or _MOST_GRAMMAR_CHARACTERS
        yield window[:cut]
        window = window[cut:]
    yield window


def _chinese(text: str) -> list[tuple[bool, str]]:
    """Around the digits of each clause: the Chinese grammar does nothing without a digit."""
    return [piece for clause in _CLAUSE.findall(text) if clause for piece in _split_around_digits(clause)]


def _split_around_digits(clause: str) -> list[tuple[bool, str]]:
    places = [match.start() for match in _NUMERAL.finditer(clause)]
    if not places:
        return [(False, clause)]
    start, end = max(0, places[0] - _BEFORE), min(len(clause), places[-1] + 1 + _BEHIND)
    # Never within a Latin word, such as a unit.
    while start and clause[start - 1].isascii():
        start -= 1
    while end < len(clause) and clause[end].isascii():
        end += 1
    return [
        (is_written_form, piece)
        for is_written_form, piece in ((False, clause[:start]), (True, clause[start:end]), (False, clause[end:]))
        if piece
    ]


def _english(text: str) -> list[tuple[bool, str]]:
    if not _WRITTEN.search(text):
        return [(False, text)]
    words = _WORD.findall(text)
    is_written_form = [False] * len(words)
    for place, word in enumerate(words):
        if _WRITTEN.search(word.rstrip()):
            first, last = max(0, place - _AROUND), min(len(words), place + _AROUND + 1)
            is_written_form[first:last] = [True] * (last - first)
    return list(zip(is_written_form, words, strict=True))
