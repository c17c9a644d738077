"""What a document inserts into its text: phonemes, and values that are read according to their
kind.

Each is one private-use character in the text (`placeholders`) until the language around it is
known, so that no rule for written text applies to it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.frontend.ssml.say_as.values import Value
from services.frontend.text.characters import speakable
from services.frontend.text.language import CHINESE, ENGLISH
from services.frontend.tokenizers.placeholders import INSERTED, place_of

_LETTER = re.compile("(?P<han>[\u3400-\u9fff\U00020000-\U0003ffff])|[A-Za-z\u00c0-\u024f]")
_AROUND = re.compile(f"({INSERTED.pattern})")
_NEAR = 200
"""Characters around an inserted value that are searched for its language."""


@dataclass(frozen=True)
class Phonemes:
    """Phonemes of the model's alphabet, words separated by single blanks."""

    phonemes: str


Inserted = Phonemes | Value


def with_inserted(
    text: str, inserted: Sequence[Inserted], language: str, placeholder: Callable[[str], str], *, phonemes: bool
) -> str:
    """`text` with words, or placeholders of phonemes, in place of the inserted items.

    language: of the whole text. A value is read in it unless it is Chinese or English; then the
    letter before the value decides, or the one after it where there is none before. placeholder:
    returns the placeholder character of phonemes. phonemes: whether the model reads phonemes.
    """

    def put(match: re.Match[str]) -> str:
        item = inserted[place_of(match[0])]
        if isinstance(item, Phonemes):
            return placeholder(item.phonemes)
        before, after = text[max(0, match.start() - _NEAR) : match.start()], text[match.end() : match.end() + _NEAR]
        near = _language_near(before, after, language)
        words = item.words(near, placeholder if phonemes else None)
        if near == CHINESE:
            return words
        return _gap(before[-1:], words[:1]) + words + _gap(words[-1:], after[:1])

    return INSERTED.sub(put, text)


def speakable_around(text: str) -> str:
    """`characters.speakable` applied to `text` without changing its placeholders."""
    if text.isascii():
        return speakable(text)
    return "".join(part if INSERTED.fullmatch(part) else speakable(part) for part in _AROUND.split(text))


def _language_near(before: str, after: str, language: str) -> str:
    if language not in (CHINESE, ENGLISH):
        return language
    nearest = next(iter([*reversed(list(_LETTER.finditer(before))), *_LETTER.finditer(after)]), None)
    return language if nearest is None else CHINESE if nearest["han"] else ENGLISH


def _gap(left: str, right: str) -> str:
    return " " if left.isalnum() and right.isalnum() else ""
