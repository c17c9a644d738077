"""The meaningful text that the phoneme tokenizer skips: letters of other scripts, signs without a
reading.
"""

import re
from functools import lru_cache

from services.frontend.text.characters import has_meaning, stretches
from services.frontend.tokenizers.phonemes.reading import read_words

_DIGIT = re.compile(r" ?\d")
_NEVER, _BEFORE_DIGIT, _ALWAYS = range(3)


def unread(text: str) -> list[str]:
    """Those spans, as they are written; linear in the length of the text."""
    odd = {character: read for character in set(text) if (read := _read(character)) != _ALWAYS}
    if not odd:
        return []

    def is_unread(place: int) -> bool:
        read = odd.get(text[place], _ALWAYS)
        return read == _NEVER or (read == _BEFORE_DIGIT and not _DIGIT.match(text, place + 1))

    return stretches(text, is_unread)


@lru_cache(maxsize=8192)
def _read(character: str) -> int:
    """When `character` is read. A character without meaning counts as read: leaving it out needs no
    warning.
    """
    if not has_meaning(character) or read_words(character):
        return _ALWAYS
    return _BEFORE_DIGIT if read_words(character + "1") != read_words("1") else _NEVER
