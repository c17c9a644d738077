"""Placeholders for parts of a text that must pass normalisation and splitting unchanged: each is
one private-use character until the end.

A single character cannot be cut, is not a word to the grammars, and cannot be written by a caller
(`characters.speakable` removes private-use characters).
"""

import re
from collections.abc import Sequence

from services.frontend.tokenizers.placeholders import MARKUP

_FIRST_MARK = 0xE000
_FIRST_PHONEMES = 0xF0000
MOST_PHONEMES = 60_000
PLACEHOLDERS = re.compile(f"([\ue000-{chr(_FIRST_MARK + len(MARKUP) - 1)}\U000f0000-\U000ffffd]+)")
BEGIN, BLANK, END = "\uf8f0", "\uf8f1", "\uf8f2"
"""Delimit given phonemes, and separate their words, in the text that the tokenizer receives."""
_FIRST_INSERTED = 0x100000
INSERTED = re.compile("[\U00100000-\U0010fffd]")
"""What an SSML document inserts into its text (`ssml.inserted`), until its language is known."""
_MARKS = re.compile("|".join(re.escape(mark) for mark in MARKUP))
_PLACES = {mark: chr(_FIRST_MARK + place) for place, mark in enumerate(MARKUP)}


def replace_marks(text: str) -> str:
    """`text` with a placeholder for each sound tag (`[laughter]`, `<strong>`)."""
    return _MARKS.sub(lambda match: _PLACES[match[0]], text) if "[" in text or "<" in text else text


def phoneme_placeholder(place: int) -> str:
    """The placeholder of entry `place` of the call's list of phonemes."""
    return chr(_FIRST_PHONEMES + place)


def inserted_placeholder(place: int) -> str:
    """The placeholder of entry `place` of what a document inserts; `ssml.elements.LONGEST_DOCUMENT`
    keeps it in its range.
    """
    return chr(_FIRST_INSERTED + place)


def place_of(inserted: str) -> int:
    """The index of the entry that a placeholder of INSERTED represents."""
    return ord(inserted) - _FIRST_INSERTED


def mark_of(placeholder: str) -> str:
    """The sound tag that a placeholder represents; empty for one of phonemes."""
    code = ord(placeholder)
    return MARKUP[code - _FIRST_MARK] if code < _FIRST_PHONEMES else ""


def for_tokenizer(text: str, phonemes: Sequence[str]) -> str:
    """`text` with its sound tags as they are written and phonemes between `BEGIN` and `END`."""
    return PLACEHOLDERS.sub(lambda match: "".join(_opened(c, phonemes, BEGIN, BLANK, END) for c in match[0]), text)


def for_reader(text: str, phonemes: Sequence[str]) -> str:
    """`text` with its sound tags as they are written and phonemes between slashes."""
    return PLACEHOLDERS.sub(lambda match: "".join(_opened(c, phonemes, "/", " ", "/") for c in match[0]), text)


def _opened(placeholder: str, phonemes: Sequence[str], begin: str, blank: str, end: str) -> str:
    code = ord(placeholder)
    if code < _FIRST_PHONEMES:
        return MARKUP[code - _FIRST_MARK]
    return (
        begin + phonemes[code - _FIRST_PHONEMES].replace(" ", blank) + end
        if code - _FIRST_PHONEMES < len(phonemes)
        else ""
    )
