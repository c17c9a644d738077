"""The phonemes of a text that is told run by run.

How a word sounds depends on its neighbours: the two behind it (the, to, a; read, use, live) and all
before it. So a word is given when two more are known, and is then what it would be if the text
ended with those two. That is a function of the text and its runs alone. It differs from
`PhonemeTokenizer.encode` only where a rule looks further: at a time word late in the sentence
("read ... yesterday"), or at a text in capitals.
"""

import re
from collections.abc import Mapping

from services.frontend.tokenizers.phonemes.pronouncer import Pronouncer, join_pronunciations
from services.frontend.tokenizers.phonemes.reading import Word, ended, read_words
from services.frontend.tokenizers.phonemes.symbols import START
from services.frontend.tokenizers.tokenizer import Certain

WORDS_AHEAD = 2


class GrowingPhonemes:
    """One unit of a text, at most 4,000 characters with its replacements (`reading_context`): its
    time grows with their square. Meets `tokenizers.tokenizer.GrowingIds`."""

    def __init__(self, pronouncer: Pronouncer, ids: Mapping[str, int], silent: re.Pattern[str] | None) -> None:
        """silent: what is passed over."""
        self.opening: tuple[int, ...] = (ids[START],)
        self._pronouncer, self._ids, self._silent = pronouncer, ids, silent
        self._text = ""
        self._given = 0

    def feed(self, run: str) -> Certain:
        words = self._words(run)
        return self._certain(words, len(words) - WORDS_AHEAD)

    def finish(self, run: str) -> Certain:
        words = ended(self._words(run))
        return self._certain(words, len(words))

    def _words(self, run: str) -> list[Word]:
        self._text += run if self._silent is None else self._silent.sub(" ", run)
        return read_words(self._text)

    def _certain(self, words: list[Word], until: int) -> Certain:
        """The words from the first that was not given yet up to `until`."""
        if until <= self._given:
            return Certain([])
        given = slice(self._given, until)
        pronunciations = self._pronouncer.pronounce(words)[given]
        symbols, places = join_pronunciations(words[given], pronunciations, first=not self._given)
        self._given = until
        return Certain([self._ids[symbol] for symbol in symbols], places)
