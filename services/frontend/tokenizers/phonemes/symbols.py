"""The phoneme alphabet: one character per symbol, in the notation of the misaki project; the names
of letters in it, and the conversion from the International Phonetic Alphabet.

Capital letters are diphthongs (`A` as in day, `I` eye, `O` go, `W` how, `Y` boy), `ᵊ` and `ᵻ`
reduced vowels, `ɾ` the American tap.
"""

import json
import re
import unicodedata
from pathlib import Path

from cosyserve.errors import ModelError
from services.frontend.text.rules import any_of

PAD = "_"
START = "^"
"""Begins every sentence, so that every sentence has a symbol."""
BLANK = " "
MARKS = ';:,.!?—…"()'
PRIMARY = "ˈ"
SECONDARY = "ˌ"
STRESS = PRIMARY + SECONDARY
VOWELS = frozenset("AIOQWYaiuæɐɑɒɔəɛɜɪʊʌᵊᵻ")
PHONES = "AIOQWYabdefhijklmnopstuvwzæðŋɐɑɒɔəɛɜɡɪɹɾʃʊʌʒʔʤʧθᵊᵻː"
SYMBOLS = (PAD, START, BLANK, *MARKS, *STRESS, *PHONES)
"""Written into new model directories; the reader uses the directory's own list."""
_PRONUNCIATION = re.compile(f"[{STRESS}]*[{PHONES}][{PHONES}{STRESS}]*")


def read_symbols(path: Path) -> dict[str, int]:
    """Symbol to id: the file is a JSON list of single characters; the index of a symbol is its id.

    Raises ModelError naming the file when it is unreadable, not such a list, or lacks a symbol of
    `SYMBOLS`.
    """
    try:
        symbols = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not a readable JSON file: {error}") from error
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) and len(symbol) == 1 for symbol in symbols):
        raise ModelError(f"{path}: expected a list of single characters")
    ids = {symbol: place for place, symbol in enumerate(symbols)}
    if len(ids) != len(symbols):
        raise ModelError(f"{path}: holds a symbol twice")
    missing = [symbol for symbol in SYMBOLS if symbol not in ids]
    if missing:
        raise ModelError(f"{path}: symbol {missing[0]!r} is missing")
    return ids


def is_pronunciation(text: str) -> bool:
    """Whether `text` consists of phones and stress marks and has at least one phone."""
    return _PRONUNCIATION.fullmatch(text) is not None


def starts_with_vowel(pronunciation: str) -> bool:
    """Whether the first sound is a vowel; stress is ignored."""
    return pronunciation.lstrip(STRESS)[:1] in VOWELS


_NAMES = {
    "a": "A", "b": "bi", "c": "si", "d": "di", "e": "i", "f": "ɛf", "g": "ʤi", "h": "Aʧ", "i": "I", "j": "ʤA",
    "k": "kA", "l": "ɛl", "m": "ɛm", "n": "ɛn", "o": "O", "p": "pi", "q": "kju", "r": "ɑɹ", "s": "ɛs", "t": "ti",
    "u": "ju", "v": "vi", "w": "dʌbᵊlju", "x": "ɛks", "y": "wI", "z": "zi",
}  # fmt: skip
_VOWEL_INDEX = {
    letter: next(index for index, symbol in enumerate(name) if symbol in "AIOiuɛɑʌ") for letter, name in _NAMES.items()
}
"""Index of the first vowel in the name of each letter: the stress mark is inserted before it."""


def spell(letters: str) -> str:
    """Phonemes of the names of `letters`, joined into one word: primary stress on the last name,
    secondary stress on the others. Characters other than a to z, in either case, are skipped; the
    result is empty if no letter remains.
    """
    known = [letter for letter in letters.lower() if letter in _NAMES]
    return "".join(
        _NAMES[letter][: _VOWEL_INDEX[letter]]
        + (PRIMARY if index == len(known) - 1 else SECONDARY)
        + _NAMES[letter][_VOWEL_INDEX[letter] :]
        for index, letter in enumerate(known)
    )


_LETTERS = {
    "tʃ": "ʧ", "t͡ʃ": "ʧ", "dʒ": "ʤ", "d͡ʒ": "ʤ", "eɪ": "A", "aɪ": "I", "oʊ": "O", "əʊ": "O", "aʊ": "W", "ɔɪ": "Y",
    "ɝ": "ɜɹ", "ɚ": "əɹ", "ɪə": "ɪɹ", "eə": "ɛɹ", "ʊə": "ʊɹ", "l̩": "ᵊl", "n̩": "ᵊn", "m̩": "ᵊm", "r": "ɹ", "g": "ɡ",
    "ɫ": "l", "e": "ɛ", "o": "O", "ʍ": "w", "x": "k", "ɒ": "ɑ", "ɨ": "ᵻ", "ɘ": "ə", "ʉ": "u", "ɐ": "ɐ",
}  # fmt: skip
"""The letters that differ; the longest match wins."""
_SAME = frozenset(PHONES) - frozenset("AIOQWYː")
_STRESSES = {"ˈ": PRIMARY, "'": PRIMARY, "ˌ": SECONDARY, ",": SECONDARY}
_SILENT = frozenset(".ːˑ‿|͜͡ʰʷ")
"""Syllable boundaries, length, ties, aspiration: they do not distinguish words in English."""
_SOUNDS = {symbol: symbol for symbol in _SAME} | dict.fromkeys(_SILENT, "") | _LETTERS | _STRESSES
_STRESSED_SYLLABLE = re.compile(rf"([{STRESS}])([^{STRESS}{''.join(VOWELS)}]*)(?=[{''.join(VOWELS)}])")
"""IPA marks stress before a syllable, misaki before its vowel."""
_SOUND = re.compile(f"{any_of(_SOUNDS)}|.", re.DOTALL)


def misaki_of(ipa: str) -> str:
    """English in the International Phonetic Alphabet as words in the notation of the model,
    separated by single blanks. Raises ValueError naming the first symbol without an equivalent.

    Source: Handbook of the International Phonetic Association (1999).
    """
    words = unicodedata.normalize("NFD", ipa).replace("\u0067", "ɡ").strip(" /[]").split()
    return " ".join(_STRESSED_SYLLABLE.sub(r"\2\1", _SOUND.sub(_sound, word)) for word in words)


def _sound(symbol: re.Match[str]) -> str:
    if symbol[0] not in _SOUNDS:
        raise ValueError(f"{symbol[0]!r} (U+{ord(symbol[0]):04X}) is no symbol of English in IPA")
    return _SOUNDS[symbol[0]]
