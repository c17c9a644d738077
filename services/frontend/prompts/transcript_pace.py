"""Whether a transcript can belong to a recording, judged by its speaking rate.

A prompt whose text and audio differ gives a voice that repeats, babbles or speaks the prompt.
Speech recognition would find more errors; this check finds the transcript of another take, a
truncated one, and a transcript that is only a title.
"""

import re
import unicodedata

from cosyserve.errors import InvalidRequest

SLOWEST, FASTEST = 1.0, 10.0
"""Syllables per second. Speech has 3 to 8 in every language that was measured (F. Pellegrino et
al., "A cross-language perspective on speech information rate", Language 87, 2011), slow speech with
pauses about 2.
"""
_VOWELS = re.compile(r"[aeiouyäöüàáâãåæèéêëìíîïòóôõøùúûýœаеёиоуыэюя]+")
_ALPHABET = re.compile(r"[a-zà-ÿœа-яё]")
_LETTERS_PER_SYLLABLE = 2.5


def syllables(text: str) -> float:
    """An estimate of the syllables in `text`: a character of Chinese, Japanese kana or Korean is
    one, a Latin or Cyrillic word has one for each run of vowels, 2.5 letters of other scripts count
    as one. text: normalised, so numbers are words.
    """
    count = float(len(re.findall(r"\d", text)))
    for word in re.findall(r"[^\W\d_]+", text.lower()):
        rest = "".join(letter for letter in word if not _is_syllable(letter))
        count += len(word) - len(rest)
        if _ALPHABET.search(rest):
            count += max(1, len(_VOWELS.findall(rest)))
        else:
            count += len(rest) / _LETTERS_PER_SYLLABLE
    return count


def require_plausible(text: str, seconds: float) -> None:
    """Raise InvalidRequest when speaking `text` in `seconds` takes less than 1 or more than 10
    syllables per second.
    """
    count = syllables(text)
    pace = count / seconds
    if not SLOWEST <= pace <= FASTEST:
        raise InvalidRequest(
            f"the transcript is implausible: about {count:.0f} syllables in {seconds:.1f} s of speech are {pace:.1f} a "
            f"second, allowed {SLOWEST:g} to {FASTEST:g}; is it what the recording says?"
        )


def _is_syllable(letter: str) -> bool:
    # Names in the character database: CJK UNIFIED IDEOGRAPH-..., HIRAGANA LETTER ..., HANGUL
    # SYLLABLE ...
    return unicodedata.name(letter, "").startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL SYLLABLE"))
