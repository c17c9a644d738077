"""The phoneme alphabet: one character per symbol, in the notation of the misaki project.

Capital letters are diphthongs (`A` as in day, `I` eye, `O` go, `W` how, `Y` boy), `ᵊ` and `ᵻ`
reduced vowels, `ɾ` the American tap.
"""

import json
import re
from pathlib import Path

from cosyserve.errors import ModelError

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
