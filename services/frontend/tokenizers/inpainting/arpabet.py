"""Phonemes of English in ARPAbet, as in the CMU dictionary, and the conversion to it from the
International Phonetic Alphabet.
"""

from services.frontend.tokenizers.phonemes.symbols import PRIMARY, SECONDARY, misaki_of

_VOWELS = {
    "A": "EY", "I": "AY", "O": "OW", "Q": "OW", "W": "AW", "Y": "OY", "a": "AE", "i": "IY", "u": "UW", "æ": "AE",
    "ɐ": "AH", "ɑ": "AA", "ɒ": "AA", "ɔ": "AO", "ə": "AH", "ɛ": "EH", "ɜ": "ER", "ɪ": "IH", "ʊ": "UH", "ʌ": "AH",
    "ᵊ": "AH", "ᵻ": "IH",
}  # fmt: skip
"""By the symbol of `phonemes.symbols`; the CMU dictionary writes schwa as an unstressed AH."""
_CONSONANTS = {
    "b": "B", "d": "D", "f": "F", "h": "HH", "j": "Y", "k": "K", "l": "L", "m": "M", "n": "N", "p": "P", "s": "S",
    "t": "T", "v": "V", "w": "W", "z": "Z", "ð": "DH", "ŋ": "NG", "ɡ": "G", "ɹ": "R", "ɾ": "T", "ʃ": "SH", "ʒ": "ZH",
    "ʔ": "T", "ʤ": "JH", "ʧ": "CH", "θ": "TH", "e": "EH", "o": "OW",
}  # fmt: skip
_R_COLOURED = "əɜ"
"""Before an r these are one sound with it, ER."""
_STRESSES = {PRIMARY: "1", SECONDARY: "2"}


def arpabet_of(ipa: str) -> list[list[str]]:
    """The phonemes of each word of English in IPA, vowels with their stress (0 to 2). A word of
    several syllables without a mark of stress has none on its vowels; one of a single syllable is
    stressed. Raises ValueError naming the first symbol without an equivalent.
    """
    return [_word(word) for word in misaki_of(ipa).split(" ") if word]


def _word(word: str) -> list[str]:
    sounds: list[str] = []
    vowels: list[int] = []
    marked = any(symbol in _STRESSES for symbol in word)
    stress = "0" if marked else ""
    skipped = False
    for symbol, following in zip(word, [*word[1:], ""], strict=True):
        if skipped:
            skipped = False
        elif symbol in _STRESSES:
            stress = _STRESSES[symbol]
        elif symbol in _VOWELS:
            skipped = symbol in _R_COLOURED and following == "ɹ"
            vowels.append(len(sounds))
            sounds.append(("ER" if skipped else _VOWELS[symbol]) + stress)
            stress = "0" if marked else ""
        elif symbol in _CONSONANTS:
            sounds.append(_CONSONANTS[symbol])
        else:
            raise ValueError(f"{symbol!r} (U+{ord(symbol):04X}) has no phoneme in ARPAbet")
    if len(vowels) == 1 and not marked:
        sounds[vowels[0]] += "1"
    return sounds
