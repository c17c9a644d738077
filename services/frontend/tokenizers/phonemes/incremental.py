"""The phonemes of a text that arrives run by run.

The pronunciation of a word depends on its neighbours: the two words after it (the, to, a; read,
use, live) and all before it. So a word is emitted when two more are known, and is pronounced as if
the text ended with those two. The result depends only on the text and its runs. It differs from
`PhonemeTokenizer.encode` only where a rule looks further: at a time word late in the sentence
("read ... yesterday"), or at a text in capitals.
"""

import re
from collections.abc import Mapping

from services.frontend.tokenizers.phonemes.pronouncer import Pronouncer, join_pronunciations
from services.frontend.tokenizers.phonemes.reading import Word, end_sentence, read_words
from services.frontend.tokenizers.phonemes.symbols import START
from services.frontend.tokenizers.tokenizer import FinalIds

WORDS_AHEAD = 2


class IncrementalPhonemes:
    """Encodes one unit of a text, at most 4,000 characters with its replacements
    (`reading_context`): time is quadratic in it. Implements
    `tokenizers.tokenizer.IncrementalEncoder`.
    """

    def __init__(self, pronouncer: Pronouncer, ids: Mapping[str, int], silent: re.Pattern[str] | None) -> None:
        """silent: text that is skipped."""
        self.opening: tuple[int, ...] = (ids[START],)
        self._pronouncer, self._ids, self._silent = pronouncer, ids, silent
        self._text = ""
        self._emitted = 0

    def feed(self, run: str) -> FinalIds:
        words = self._words(run)
        return self._certain(words, len(words) - WORDS_AHEAD)

    def finish(self, run: str) -> FinalIds:
        words = end_sentence(self._words(run))
        return self._certain(words, len(words))

    def _words(self, run: str) -> list[Word]:
        self._text += run if self._silent is None else self._silent.sub(" ", run)
        return read_words(self._text)

    def _certain(self, words: list[Word], until: int) -> FinalIds:
        """The words up to `until` that were not emitted yet."""
        if until <= self._emitted:
            return FinalIds([])
        pending = slice(self._emitted, until)
        pronunciations = self._pronouncer.pronounce(words)[pending]
        symbols, places = join_pronunciations(words[pending], pronunciations, first=not self._emitted)
        self._emitted = until
        return FinalIds([self._ids[symbol] for symbol in symbols], places)
