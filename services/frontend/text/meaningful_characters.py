"""Which characters carry meaning, so that leaving them out needs a warning. Punctuation, layout
marks and emoji do not.
"""

import re
import unicodedata
from collections.abc import Callable

_CATEGORIES = frozenset(("Sc", "Sm", "So"))
_SILENT = re.compile("[|~\u2500-\u25ff\u2800]")
"""Layout marks and characters that draw pages and tables."""


def has_meaning(character: str) -> bool:
    """Whether `character` is a letter, a digit, or a sign that is spoken."""
    category = unicodedata.category(character)
    return category[0] in "LN" or (category in _CATEGORIES and not _SILENT.match(character)) or character in "§¶†‡‰‱&@%"


def stretches(text: str, is_left_out: Callable[[int], bool]) -> list[str]:
    """The spans of `text` whose meaningful characters are all left out, without the characters
    around them. is_left_out: takes an index.
    """
    spans, start, end = list[str](), -1, -1
    for place, character in enumerate(text):
        if not has_meaning(character):
            continue
        if is_left_out(place):
            start, end = (place if start < 0 else start), place + 1
        elif start >= 0:
            spans.append(text[start:end])
            start = -1
    return [*spans, text[start:end]] if start >= 0 else spans


def scripts_of(texts: tuple[str, ...]) -> list[str]:
    """The scripts of the letters in `texts` as Unicode names them, at most four: "CJK",
    "CYRILLIC".
    """
    names = (
        unicodedata.name(character, "").split(" ")[0].split("-")[0]
        for text in texts
        for character in text
        if character.isalpha()
    )
    return list(dict.fromkeys(name for name in names if name))[:4]
