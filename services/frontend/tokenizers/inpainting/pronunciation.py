"""A pronunciation that a caller gives, as the marks of a tokenizer that has them: `[HH][AH0]...`
for phonemes of English, `[n][ǐ]` for a syllable of Mandarin.
"""

import re
from collections.abc import Sequence

from services.frontend.tokenizers.inpainting.arpabet import arpabet_of
from services.frontend.tokenizers.inpainting.pinyin import parts_of
from services.frontend.tokenizers.placeholders import ANY_CONTROL, Marks

IPA, CMU, PINYIN = "ipa", "cmu", "pinyin"
ALPHABETS = (IPA, CMU, PINYIN)
_IN_BRACKETS = re.compile(r"\[[^\[\]\s]{1,8}\]")
_PHONEME = re.compile(r"[A-Z]{1,2}[0-2]?")


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
