"""Phonemes of the English names of letters, for acronyms, initials, and words without a known
pronunciation.
"""

from services.frontend.tokenizers.phonemes.symbols import PRIMARY, SECONDARY

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
