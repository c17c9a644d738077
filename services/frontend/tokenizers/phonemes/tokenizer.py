"""The tokenizer of a model directory that reads phonemes: `phonemes/symbols.json`, `lexicon.tsv.gz`
and `letters.tsv.gz`.

A text becomes `^` and its phonemes: words separated by one blank, marks attached to the word before
them, a pause in front of some letters (`set_apart`), a full stop, question mark, exclamation
mark or ellipsis at the end. English only: text without an English reading (other scripts, emoji)
is skipped, and a text that consists only of it has no ids.

Control tokens and sound tags do not exist here. Sound tags (`[laughter]`) are silent; `<|...|>` is
ordinary text, unless special tokens are allowed: then it is silent too. Phonemes from a dictionary
are delimited by `placeholders.BEGIN` and `placeholders.END` and are used as they are.
"""

import re
from collections.abc import Mapping, Sequence

from cosyserve.model_directory import ModelDirectory
from services.frontend.tokenizers.phonemes.homographs import word_set
from services.frontend.tokenizers.phonemes.letter_to_sound import read_letters
from services.frontend.tokenizers.phonemes.lexicon import read_lexicon
from services.frontend.tokenizers.phonemes.pronouncer import PhonemeString, Pronouncer, join_pronunciations
from services.frontend.tokenizers.phonemes.reading import GIVEN, Word, end_sentence, read_words, unread
from services.frontend.tokenizers.phonemes.symbols import (
    START,
    is_pronunciation,
    read_symbols,
    spell,
    starts_with_vowel,
)
from services.frontend.tokenizers.placeholders import CONTROLS, MARKUP, Marks
from services.frontend.tokenizers.tokenizer import FinalIds

WORDS_AHEAD = 2
FILES = ("phonemes/symbols.json", "phonemes/lexicon.tsv.gz", "phonemes/letters.tsv.gz")
_CONTROLS = re.compile("|".join(re.escape(token) for token in CONTROLS))
PAUSE = ";"
"""Behind a comma the bundled voices lose the letter more often, `gate C` becomes `gatesy`."""
_OBSTRUENTS = frozenset("bdfhkpstvzðɡʃʒʔʤʧθ")
"""Nasals, liquids and vowels leave the letter audible."""
_LINKED = word_set(
    "and as at but did does had has have his if is isn't it it's its just let's not of that that's this was wasn't "
    "what what's with"
)
"""Words that are joined to the letter behind them: `as X`, `it's A`."""


class IncrementalPhonemes:
    """Encodes one unit of a text that arrives run by run, at most 4,000 characters with its
    replacements (`reading_context`): time is quadratic in it. Implements
    `tokenizers.tokenizer.IncrementalEncoder`.

    The pronunciation of a word depends on its neighbours: the two words after it (the, to, a; read,
    use, live) and all before it. So a word is emitted when two more are known, and is pronounced as
    if the text ended with those two. The result depends only on the text and its runs. It differs
    from `PhonemeTokenizer.encode` only where a rule looks further: at a time word late in the
    sentence ("read ... yesterday"), or at a text in capitals.
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
        sounds = self._pronouncer.pronounce(words)
        symbols, places = join_pronunciations(
            set_apart(words, sounds)[pending], sounds[pending], first=not self._emitted
        )
        self._emitted = until
        return FinalIds([self._ids[symbol] for symbol in symbols], places)


class PhonemeTokenizer:
    """Text to phoneme ids. Immutable and thread-safe; linear in the length of the text.

    Raises ModelError naming the file when one of the directory's three is missing or malformed.
    """

    languages = ("en",)
    marks = Marks(MARKUP)
    """It leaves them out."""
    pronunciation_marks = None
    """It reads phonemes themselves."""

    def __init__(self, directory: ModelDirectory) -> None:
        symbols, lexicon, letters = (directory.file(name) for name in FILES)
        self._ids = read_symbols(symbols)
        self._pronouncer = Pronouncer(read_lexicon(lexicon), read_letters(letters))
        self._latest: tuple[str, PhonemeString] | None = None
        """The text that was read last, which is asked for several times in a row: for its length,
        its ids and its words. One value, so that threads see a text with its own phonemes.
        """

    def __len__(self) -> int:
        return len(self._ids)

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """Ids of `^` and the phonemes of `text`; empty for a text without speech."""
        if allow_special:
            text = _CONTROLS.sub(" ", text)
        phonemes = self.phonemes(text)
        return [self._ids[symbol] for symbol in START + phonemes] if phonemes else []

    def is_phonemes(self, word: str) -> bool:
        """Whether `word` consists of phones and stress marks of this model."""
        return is_pronunciation(word) and all(symbol in self._ids for symbol in word)

    def incremental_encoder(self, *, allow_special: bool = False) -> IncrementalPhonemes:
        """As `tokenizers.tokenizer.Tokenizer.incremental_encoder`."""
        return IncrementalPhonemes(self._pronouncer, self._ids, _CONTROLS if allow_special else None)

    def unread(self, text: str) -> list[str]:
        """As `tokenizers.tokenizer.Tokenizer.unread`."""
        return unread(text)

    def id_of(self, token: str) -> int | None:
        """The id of one symbol, None when it does not exist."""
        return self._ids.get(token)

    def phonemes(self, text: str) -> str:
        """The phonemes of `text` as a string of symbols without the leading `^`; empty for a text
        without speech.
        """
        return self._joined(text).symbols

    def spoken_words(self, text: str, *, allow_special: bool = False) -> list[tuple[str, int, int]]:
        """The spoken words of `text`, each with the index of its first id in `encode` of the same
        text and the number of its ids.
        """
        words = self._joined(_CONTROLS.sub(" ", text) if allow_special else text).words
        return [(word, len(START) + place, count) for word, place, count in words]

    def unknown_words(self, text: str) -> list[str]:
        """The words of `text` whose pronunciation is predicted from their letters."""
        return [word.text for word in read_words(text) if not self._pronouncer.knows(word.text)]

    def _joined(self, text: str) -> PhonemeString:
        if (latest := self._latest) is not None and latest[0] == text:
            return latest[1]
        words = end_sentence(read_words(text))
        sounds = self._pronouncer.pronounce(words)
        joined = join_pronunciations(set_apart(words, sounds), sounds, first=True)
        self._latest = text, joined
        return joined


def set_apart(words: Sequence[Word], pronunciations: Sequence[str]) -> list[Word]:
    """A short pause in front of a letter into which the word before would run: `page E` is heard as
    `pagey`, `gate C` as `gatesy`.

    Returns `words`, with `PAUSE` behind each that ends in an obstruent and has no mark, when a
    single capital letter follows whose name begins with a vowel or an s. `I` is always the pronoun,
    `A` where it is not spelled the article.

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
