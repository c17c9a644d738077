"""A pronunciation that a caller gives, as the marks of a tokenizer that has them: `[HH][AH0]...`
for phonemes of English in ARPAbet, `[n][ǐ]` for a syllable of Mandarin in Hanyu Pinyin, an initial
and a final with the mark of its tone.
"""

import re
import unicodedata
from collections.abc import Sequence

from services.frontend.tokenizers.phonemes.symbols import PRIMARY, SECONDARY, misaki_of
from services.frontend.tokenizers.placeholders import ANY_CONTROL, Marks

IPA, CMU, PINYIN = "ipa", "cmu", "pinyin"
ALPHABETS = (IPA, CMU, PINYIN)
_IN_BRACKETS = re.compile(r"\[[^\[\]\s]{1,8}\]")
_PHONEME = re.compile(r"[A-Z]{1,2}[0-2]?")
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
INITIALS = (
    "zh", "ch", "sh", "b", "p", "m", "f", "d", "t", "n", "l", "g", "k", "h", "j", "q", "x", "r", "z", "c", "s",
    "y", "w",
)  # fmt: skip
"""y and w among them, as the tokens have it; those of two letters first."""
_TONE_MARKS = {"1": "\u0304", "2": "\u0301", "3": "\u030c", "4": "\u0300"}
_MARK_TONES = {mark: tone for tone, mark in _TONE_MARKS.items()}
_SYLLABLE = re.compile(r"(?P<letters>[a-zü]{1,7})(?P<tone>[0-5]?)")


class PronunciationMarks:
    """The marks of one tokenizer, by which pronunciations are written into a text."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def of(self, alphabet: str, written: str) -> str:
        """A pronunciation as marks, words of IPA divided by blanks. alphabet: one of `ALPHABETS`;
        empty: phonemes in ARPAbet (`HH AH0 L OW1`) and syllables of pinyin (`ni3 hao3`), divided by
        blanks and known by their case.

        Raises ValueError naming what is no sound of the alphabet or has no mark.
        """
        if alphabet == IPA:
            words = arpabet_of(written)
            if not words:
                raise ValueError(f"{written!r} holds no sound")
            return " ".join(self._joined(word) for word in words)
        units = written.split()
        if not units:
            raise ValueError(f"{written!r} holds no sound")
        return "".join(self._unit(alphabet, unit) for unit in units)

    def require_known(self, text: str) -> None:
        """Raise ValueError naming the first thing in the form of a mark or of a control token that
        is none of this tokenizer's marks.
        """
        for match in re.finditer(f"{_IN_BRACKETS.pattern}|{ANY_CONTROL.pattern}", text):
            if match[0] not in self._marks:
                raise ValueError(f"the model has no token {match[0]} that may be given there")

    def _unit(self, alphabet: str, unit: str) -> str:
        is_phoneme = alphabet == CMU or (alphabet != PINYIN and unit[:1].isupper())
        if not is_phoneme:
            initial, final = parts_of(unit)
            return self._joined([initial, final] if initial else [final], of=unit)
        if not _PHONEME.fullmatch(unit):
            raise ValueError(f"{unit!r} is no phoneme of ARPAbet; expected such as HH, AH0 or OW1, divided by blanks")
        return self._joined([unit])

    def _joined(self, sounds: Sequence[str], of: str = "") -> str:
        marks = [f"[{sound}]" for sound in sounds]
        for mark in marks:
            if mark not in self._marks:
                raise ValueError(f"the model has no token {mark}" + (f", which {of!r} needs" if of else ""))
        return "".join(marks)


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


def parts_of(syllable: str) -> tuple[str, str]:
    """The initial, empty for a syllable without one, and the final with the mark of its tone
    (`nǐ` and `ni3` are `n` and `ǐ`). `v` and `u:` are ü; tone 5 or 0, or none, is the neutral one.

    Raises ValueError for something else than a syllable of small letters with its tone: an initial
    or an ending alone, too, and a final that pinyin writes with y or w.
    """
    letters, tone = _letters_and_tone(syllable)
    initial = next((each for each in INITIALS if letters.startswith(each) and len(letters) > len(each)), "")
    final = letters[len(initial) :]
    if final[0] not in ("aeiouü" if initial else "aeo"):
        raise ValueError(
            f"{syllable!r} is no whole syllable of pinyin; expected an initial and a final such as shi4, or a final "
            "that stands alone such as an1"
        )
    if initial in ("j", "q", "x", "y"):
        # There ü is written u: the tokens have only that.
        final = final.replace("ü", "u")
    return initial, _with_tone(final, tone)


def _letters_and_tone(syllable: str) -> tuple[str, str]:
    spread = unicodedata.normalize("NFD", syllable)
    tones = [character for character in spread if character in _MARK_TONES]
    letters = unicodedata.normalize("NFC", "".join(c for c in spread if c not in _MARK_TONES))
    match = _SYLLABLE.fullmatch(letters.replace("u:", "ü").replace("v", "ü"))
    if match is None or len(tones) > 1 or (tones and match["tone"]):
        raise ValueError(
            f"{syllable!r} is no syllable of pinyin; expected small letters with a tone number or a tone mark, such as "
            "ni3 or nǐ"
        )
    return match["letters"], _MARK_TONES[tones[0]] if tones else match["tone"].strip("05")


def _with_tone(final: str, tone: str) -> str:
    # The only final of ü and e that has a token is written with v.
    final = final.replace("üe", "ve")
    if not tone:
        return final
    place = next(
        (final.index(vowel) for vowel in ("a", "e", "ou") if vowel in final),
        max((index for index, letter in enumerate(final) if letter in "iouü"), default=-1),
    )
    if place < 0:
        raise ValueError(f"{final!r} has no vowel that could have tone {tone}")
    return unicodedata.normalize("NFC", final[: place + 1] + _TONE_MARKS[tone] + final[place + 1 :])
