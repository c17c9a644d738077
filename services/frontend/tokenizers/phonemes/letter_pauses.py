"""A short pause in front of a letter into which the word before would run: `page E` is heard as
`pagey`, `gate C` as `gatesy`.
"""

from collections.abc import Sequence

from services.frontend.tokenizers.phonemes.homographs import word_set
from services.frontend.tokenizers.phonemes.reading import GIVEN, Word
from services.frontend.tokenizers.phonemes.symbols import spell, starts_with_vowel

PAUSE = ","
_OBSTRUENTS = frozenset("bdfhkpstvzðɡʃʒʔʤʧθ")
"""Nasals, liquids and vowels leave the letter audible."""
_LINKED = word_set(
    "and as at but did does had has have his if is isn't it it's its just let's not of that that's this was wasn't "
    "what what's with"
)
"""Words that are joined to the letter behind them: `as X`, `it's A`."""


def set_apart(words: Sequence[Word], pronunciations: Sequence[str]) -> list[Word]:
    """`words`, with `PAUSE` behind each that ends in an obstruent and has no mark, when a single
    capital letter follows whose name begins with a vowel or an s. `I` is always the pronoun, `A`
    where it is not spelled the article.

    pronunciations: of each word. What is added behind a word depends on it and on the next alone.
    """
    apart = list(words)
    for place in range(len(words) - 1):
        word, letter, sound = words[place], words[place + 1].text, pronunciations[place + 1]
        if (
            not word.mark
            and len(letter) == 1
            and letter.isupper()
            and letter != "I"
            and sound == spell(letter)
            and (starts_with_vowel(sound) or sound.startswith("s"))
            and len(word.text) > 1
            and word.text[0] != GIVEN
            and word.text.lower() not in _LINKED
            and pronunciations[place][-1] in _OBSTRUENTS
        ):
            apart[place] = Word(word.text, PAUSE)
    return apart
