"""Which characters say something: who leaves them out owes a word about it. Marks of punctuation,
of a page and emoji do not.
"""

import re
import unicodedata
from collections.abc import Callable

_CATEGORIES = frozenset(("Sc", "Sm", "So"))
_SILENT = re.compile("[|~\u2500-\u25ff\u2800]")
"""Marks of a page, and what pages and tables are drawn with."""


def has_meaning(character: str) -> bool:
    """Whether `character` is a letter, a digit, or a sign that people say."""
    category = unicodedata.category(character)
    return category[0] in "LN" or (category in _CATEGORIES and not _SILENT.match(character)) or character in "§¶†‡‰‱&@%"


def stretches(text: str, is_left_out: Callable[[int], bool]) -> list[str]:
    """The stretches of `text` whose characters with a meaning are all left out, without what is
    around them. is_left_out: of a place.
    """
    found, start, end = list[str](), -1, -1
    for place, character in enumerate(text):
        if not has_meaning(character):
            continue
        if is_left_out(place):
            start, end = (place if start < 0 else start), place + 1
        elif start >= 0:
            found.append(text[start:end])
            start = -1
    return [*found, text[start:end]] if start >= 0 else found


def scripts_of(found: tuple[str, ...]) -> list[str]:
    """The scripts of the letters in `found` as Unicode names them, at most four: "CJK",
    "CYRILLIC".
    """
    names = (
        unicodedata.name(character, "").split(" ")[0].split("-")[0]
        for text in found
        for character in text
        if character.isalpha()
    )
    return list(dict.fromkeys(name for name in names if name))[:4]
