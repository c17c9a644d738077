"""Pronunciations as marks: ARPAbet, pinyin and IPA, for a tokenizer that has tokens for them."""

import re
import unicodedata

import pytest

from cosyserve.generations.cosyvoice2 import SOUND_MARKS
from cosyserve.generations.cosyvoice3 import COSYVOICE3, PHONEMES, PINYIN
from services.frontend.tokenizers.inpainting.pronunciation import (
    CMU,
    INITIALS,
    PronunciationMarks,
    arpabet_of,
    parts_of,
)
from services.frontend.tokenizers.inpainting.pronunciation import PINYIN as PINYIN_ALPHABET
from services.frontend.tokenizers.placeholders import Marks
from tests.unit.frontend import models

MARKS = PronunciationMarks(Marks([mark for mark in COSYVOICE3.text_marks if not mark.startswith("<|")]))
TONES = {"̄": "1", "́": "2", "̌": "3", "̀": "4"}


def numbered(final: str) -> str:
    """A final with its tone as a number at its end."""
    spread = unicodedata.normalize("NFD", final)
    letters = unicodedata.normalize("NFC", "".join(c for c in spread if c not in TONES))
    return letters + "".join(TONES[c] for c in spread if c in TONES)


@pytest.mark.parametrize("final", [each for each in PINYIN if each not in INITIALS])
def test_every_final_is_reached_by_its_number_and_by_its_mark(final: str) -> None:
    initial = "" if final[:1] not in "iuüǖǘǚǜvíìīǐùúūǔ" else "l"
    for written in (initial + final, initial + numbered(final)):
        assert MARKS.of("", written) == (f"[{initial}]" if initial else "") + f"[{final}]"


@pytest.mark.parametrize(
    ("syllable", "initial", "final"),
    [
        ("ni3", "n", "ǐ"),
        ("hǎo", "h", "ǎo"),
        ("zhuang4", "zh", "uàng"),
        ("lü4", "l", "ǜ"),
        ("lv4", "l", "ǜ"),
        ("lu:4", "l", "ǜ"),
        ("lüe4", "l", "vè"),
        ("jü4", "j", "ù"),
        ("xue2", "x", "ué"),
        ("yuan2", "y", "uán"),
        ("wu3", "w", "ǔ"),
        ("gui4", "g", "uì"),
        ("jiu3", "j", "iǔ"),
        ("dou1", "d", "ōu"),
        ("er2", "", "ér"),
        ("an1", "", "ān"),
        ("ma5", "m", "a"),
        ("ma0", "m", "a"),
        ("de", "d", "e"),
        ("n\u0069\u030c", "n", "ǐ"),
    ],
)
def test_the_parts_of_a_syllable(syllable: str, initial: str, final: str) -> None:
    assert parts_of(syllable) == (initial, final)


@pytest.mark.parametrize(
    ("ipa", "words"),
    [
        ("ˈnaɪki", [["N", "AY1", "K", "IY0"]]),
        ("təˈmeɪtoʊ", [["T", "AH0", "M", "EY1", "T", "OW0"]]),
        ("ˈbɜːd", [["B", "ER1", "D"]]),
        ("ˈwɔtɚ", [["W", "AO1", "T", "ER0"]]),
        ("kæt", [["K", "AE1", "T"]]),
        ("həloʊ", [["HH", "AH", "L", "OW"]]),
        ("ˌɪntəˈnæʃənəl ðə", [["IH2", "N", "T", "AH0", "N", "AE1", "SH", "AH0", "N", "AH0", "L"], ["DH", "AH1"]]),
        ("s", [["S"]]),
    ],
)
def test_ipa_becomes_arpabet(ipa: str, words: list[list[str]]) -> None:
    assert arpabet_of(ipa) == words
    assert {sound for word in words for sound in word} <= set(PHONEMES)
    assert MARKS.of("ipa", ipa) == " ".join("".join(f"[{sound}]" for sound in word) for word in words)


def test_phonemes_and_syllables_are_known_by_their_case() -> None:
    for phoneme in PHONEMES:
        assert MARKS.of("", phoneme) == MARKS.of(CMU, phoneme) == f"[{phoneme}]"
    assert MARKS.of("", " K AE1  ma1 ") == "[K][AE1][m][ā]"
    assert MARKS.of(PINYIN_ALPHABET, "ka3") == "[k][ǎ]"


@pytest.mark.parametrize(
    ("alphabet", "written", "said"),
    [
        ("", "lü1", "the model has no token [ǖ], which 'lü1' needs"),
        ("", "lia", "the model has no token [ia], which 'lia' needs"),
        ("", "K QQ", "the model has no token [QQ]"),
        ("cmu", "AH3", "'AH3' is no phoneme of ARPAbet"),
        ("cmu", "ah0", "'ah0' is no phoneme of ARPAbet"),
        ("pinyin", "NI3", "'NI3' is no syllable of pinyin"),
        ("", "ní3", "'ní3' is no syllable of pinyin"),
        ("", "ni6", "is no syllable of pinyin"),
        ("", "ng2", "'ng2' is no whole syllable of pinyin; expected an initial and a final such as shi4"),
        *(("", part, f"{part!r} is no whole syllable of pinyin") for part in ("sh", "ng", "zh", "n", "ing1", "üe4")),
        ("pinyin", "n ǐ", "'n' is no whole syllable of pinyin"),
        ("", "你", "is no syllable of pinyin"),
        ("", "  ", "holds no sound"),
        ("ipa", " ", "holds no sound"),
        ("ipa", "ʘ", "no symbol of English in IPA"),
    ],
)
def test_what_has_no_mark_is_named(alphabet: str, written: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        MARKS.of(alphabet, written)


def test_only_a_model_with_such_tokens_takes_them() -> None:
    assert models.tokenizer(models.TINY).pronunciation_marks is None
    assert models.tokenizer(models.DEMO).pronunciation_marks is None
    tokenizer = models.tokenizer(models.TINY3)
    assert tokenizer.pronunciation_marks is not None
    for mark in (*SOUND_MARKS, *(f"[{sound}]" for sound in PHONEMES + PINYIN)):
        assert tokenizer.encode(mark) == [tokenizer.id_of(mark)]
