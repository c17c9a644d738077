"""The tokenizer of a model directory that reads phonemes: `phonemes/symbols.json`, `lexicon.tsv.gz`
and `letters.tsv.gz`.

A text becomes `^` and its phonemes: words divided by one blank, marks attached to the word before
them, a full stop, question mark, exclamation mark or ellipsis at the end. English only: what has no
English reading (other scripts, pictures) is passed over, and a text of nothing else has no ids at
all.

Control tokens and marks of sound do not exist here. Marks of sound (`[laughter]`) are silent;
`<|...|>` is ordinary text, unless special tokens are allowed: then it is silent too, as it never is
meant to be heard. Phonemes that a dictionary gives come between `placeholders.BEGIN` and
`placeholders.END` and are spoken as they are.
"""

import re

from cosyserve.model_directory import ModelDirectory
from services.frontend.tokenizers.control_tokens import CONTROLS
from services.frontend.tokenizers.phonemes.incremental import GrowingPhonemes
from services.frontend.tokenizers.phonemes.letter_to_sound import read_letters
from services.frontend.tokenizers.phonemes.lexicon import read_lexicon
from services.frontend.tokenizers.phonemes.pronouncer import PhonemeString, Pronouncer, join_pronunciations
from services.frontend.tokenizers.phonemes.reading import ended, read_words
from services.frontend.tokenizers.phonemes.symbols import START, is_pronunciation, read_symbols
from services.frontend.tokenizers.phonemes.unread import unread

FILES = ("phonemes/symbols.json", "phonemes/lexicon.tsv.gz", "phonemes/letters.tsv.gz")
_CONTROLS = re.compile("|".join(re.escape(token) for token in CONTROLS))


class PhonemeTokenizer:
    """Text to phoneme ids. Immutable, usable from any thread; time grows with the length of the
    text.

    Raises ModelError naming the file when one of the directory's three is missing or malformed.
    """

    def __init__(self, directory: ModelDirectory) -> None:
        symbols, lexicon, letters = (directory.file(name) for name in FILES)
        self._ids = read_symbols(symbols)
        self._pronouncer = Pronouncer(read_lexicon(lexicon), read_letters(letters))

    def __len__(self) -> int:
        return len(self._ids)

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """Ids of `^` and the phonemes of `text`; nothing for a text without anything to speak."""
        if allow_special:
            text = _CONTROLS.sub(" ", text)
        phonemes = self.phonemes(text)
        return [self._ids[symbol] for symbol in START + phonemes] if phonemes else []

    def is_phonemes(self, word: str) -> bool:
        """Whether `word` is written in phones and stress marks of this model."""
        return is_pronunciation(word) and all(symbol in self._ids for symbol in word)

    def growing(self, *, allow_special: bool = False) -> GrowingPhonemes:
        """As `tokenizers.tokenizer.Tokenizer.growing`."""
        return GrowingPhonemes(self._pronouncer, self._ids, _CONTROLS if allow_special else None)

    @property
    def languages(self) -> tuple[str, ...]:
        """English."""
        return ("en",)

    def unread(self, text: str) -> list[str]:
        """As `tokenizers.tokenizer.Tokenizer.unread`."""
        return unread(text)

    def id_of(self, token: str) -> int | None:
        """The id of one symbol, None when there is none of that name."""
        return self._ids.get(token)

    def phonemes(self, text: str) -> str:
        """The phonemes of `text` as a string of symbols without the leading `^`; empty when there
        is nothing to speak.
        """
        return self._joined(text).symbols

    def spoken_words(self, text: str, *, allow_special: bool = False) -> list[tuple[str, int, int]]:
        """The words of `text` as they are spoken, each with the place of its first id in `encode`
        of the same and the number of its ids.
        """
        words = self._joined(_CONTROLS.sub(" ", text) if allow_special else text).words
        return [(word, len(START) + place, count) for word, place, count in words]

    def unknown_words(self, text: str) -> list[str]:
        """The words of `text` whose pronunciation is told from their letters."""
        return [word.text for word in read_words(text) if not self._pronouncer.knows(word.text)]

    def _joined(self, text: str) -> PhonemeString:
        words = ended(read_words(text))
        return join_pronunciations(words, self._pronouncer.pronounce(words), first=True)
