"""Words and their pronunciations as one string of symbols, with the place of each word in it."""

from collections.abc import Sequence
from typing import NamedTuple

from services.frontend.tokenizers.phonemes.reading import GIVEN, Word
from services.frontend.tokenizers.phonemes.symbols import BLANK


class Joined(NamedTuple):
    """One blank between two words, marks behind their word. words: each with the place of its first
    symbol and the number of its symbols; given phonemes are a word between slashes."""

    symbols: str
    words: list[tuple[str, int, int]]


def joined(words: Sequence[Word], sounds: Sequence[str], *, first: bool) -> Joined:
    """first: `words` begin a text; elsewhere a blank goes in front of them."""
    symbols, found = "", []
    for place, (word, sound) in enumerate(zip(words, sounds, strict=True)):
        symbols += "" if first and not place else BLANK
        if sound:
            found.append((f"/{sound}/" if word.text.startswith(GIVEN) else word.text, len(symbols), len(sound)))
        symbols += sound + word.mark
    return Joined(symbols, found)
