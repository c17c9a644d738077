"""Syllables of Mandarin in Hanyu Pinyin as an initial and a final with the mark of its tone."""

import re
import unicodedata

INITIALS = (
    "zh", "ch", "sh", "b", "p", "m", "f", "d", "t", "n", "l", "g", "k", "h", "j", "q", "x", "r", "z", "c", "s",
    "y", "w",
)  # fmt: skip
"""y and w among them, as the tokens have it; those of two letters first."""
_TONE_MARKS = {"1": "\u0304", "2": "\u0301", "3": "\u030c", "4": "\u0300"}
_MARK_TONES = {mark: tone for tone, mark in _TONE_MARKS.items()}
_SYLLABLE = re.compile(r"(?P<letters>[a-zü]{1,7})(?P<tone>[0-5]?)")


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
