"""Whether a transcript can be what is said in a recording, by how fast it would have been spoken.

A prompt whose text and sound differ makes a voice that repeats, babbles or speaks the prompt.
Listening would find more; this finds the transcript of another take, the one cut short, and the
seconds that hold a title only.
"""

import re
import unicodedata

from cosyserve.errors import InvalidRequest

SLOWEST, FASTEST = 1.0, 10.0
"""Syllables a second. Speech has 3 to 8 in every language that was measured (F. Pellegrino et al.,
"A cross-language perspective on speech information rate", Language 87, 2011), read slowly and with
pauses about 2."""
_VOWELS = re.compile(r"[aeiouyäöüàáâãåæèéêëìíîïòóôõøùúûýœаеёиоуыэюя]+")
_ALPHABET = re.compile(r"[a-zà-ÿœа-яё]")
_LETTERS_PER_SYLLABLE = 2.5


def syllables(text: str) -> float:
    """About how many syllables `text` has: a character of Chinese, Japanese kana or Korean is one,
    a Latin or Cyrillic word has one for each run of vowels, letters of other scripts count 2.5 to
    one. text: normalised, so numbers are words."""
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
    """Raise InvalidRequest when `text` would have to be spoken slower than 1 or faster than 10
    syllables a second to last `seconds`.
    """
    count = syllables(text)
    pace = count / seconds
    if not SLOWEST <= pace <= FASTEST:
        raise InvalidRequest(
            f"the transcript is implausible: about {count:.0f} syllables in {seconds:.1f} s of speech are {pace:.1f} a "
            "second, "
            f"allowed {SLOWEST:g} to {FASTEST:g}; is it what the recording says?"
        )


def _is_syllable(letter: str) -> bool:
    # The character database names them: CJK UNIFIED IDEOGRAPH-..., HIRAGANA LETTER ..., HANGUL
    # SYLLABLE ...
    return unicodedata.name(letter, "").startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL SYLLABLE"))
