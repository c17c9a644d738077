"""English in the International Phonetic Alphabet (`phoneme alphabet="ipa"`), converted to the
notation of the misaki project.

Source: Handbook of the International Phonetic Association (1999) for the letters;
`phonemes.symbols` for the misaki notation.
"""

import re
import unicodedata

from services.frontend.tokenizers.phonemes.symbols import PHONES, PRIMARY, SECONDARY, STRESS, VOWELS

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
_LONGEST = max(map(len, _LETTERS))


def misaki_of(ipa: str) -> str:
    """Words in the notation of the model, separated by single blanks. Raises ValueError naming the
    first symbol without an equivalent.
    """
    words = unicodedata.normalize("NFD", ipa).replace("\u0067", "ɡ").strip(" /[]").split()
    return " ".join(_stress_at_vowels(_word(word)) for word in words)


def _word(word: str) -> str:
    spoken, place = "", 0
    while place < len(word):
        if word[place] in _STRESSES:
            spoken, place = spoken + _STRESSES[word[place]], place + 1
            continue
        for length in range(min(_LONGEST, len(word) - place), 0, -1):
            piece = word[place : place + length]
            if piece in _LETTERS or (length == 1 and (piece in _SAME or piece in _SILENT)):
                spoken += _LETTERS.get(piece, "" if piece in _SILENT else piece)
                place += length
                break
        else:
            raise ValueError(f"{word[place]!r} (U+{ord(word[place]):04X}) is no symbol of English in IPA")
    return spoken


def _stress_at_vowels(word: str) -> str:
    """IPA marks stress before a syllable, misaki before its vowel."""
    vowels = "".join(sorted(VOWELS))
    return re.sub(rf"([{STRESS}])([^{STRESS}{vowels}]*)(?=[{vowels}])", r"\2\1", word)
