"""Names of letters: for acronyms, initials, and words that cannot be pronounced."""

from services.frontend.tokenizers.phonemes.symbols import PRIMARY, SECONDARY

_NAMES = {
    "a": "A", "b": "bi", "c": "si", "d": "di", "e": "i", "f": "ɛf", "g": "ʤi", "h": "Aʧ", "i": "I", "j": "ʤA",
    "k": "kA", "l": "ɛl", "m": "ɛm", "n": "ɛn", "o": "O", "p": "pi", "q": "kju", "r": "ɑɹ", "s": "ɛs", "t": "ti",
    "u": "ju", "v": "vi", "w": "dʌbᵊlju", "x": "ɛks", "y": "wI", "z": "zi",
}  # fmt: skip
_VOWEL_OF = {
    letter: next(place for place, symbol in enumerate(name) if symbol in "AIOiuɛɑʌ") for letter, name in _NAMES.items()
}


def spell(letters: str) -> str:
    """The names of `letters` as one word: light stress on each, full stress on the last. Other
    characters are skipped.
    """
    known = [letter for letter in letters.lower() if letter in _NAMES]
    return "".join(
        _NAMES[letter][: _VOWEL_OF[letter]]
        + (PRIMARY if place == len(known) - 1 else SECONDARY)
        + _NAMES[letter][_VOWEL_OF[letter] :]
        for place, letter in enumerate(known)
    )
