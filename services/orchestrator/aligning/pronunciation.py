"""English words as entries of a pronouncing dictionary, or as its phones where it lacks them:
spelled, of two known words, or by rules for letters.

An alignment needs only roughly right sounds: they say how long a word may be and where its loud and
its noisy parts are. Phones are those of the CMU Pronouncing Dictionary (ARPAbet without stress).
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from services.orchestrator.aligning.untimed import Reason, Untimed

_VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
_CONSONANTS = (
    "B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG", "P", "R", "S", "SH", "T", "TH", "V", "W",
    "Y", "Z", "ZH",
)  # fmt: skip
PHONES = frozenset(_VOWELS + _CONSONANTS)
Lookup = Callable[[str], str | None]
"""A word in lower case to its phones with blanks between them; None for one that is not known."""
_LEAST_PART = 3
"""Letters of each of two known words that make up an unknown one."""
_WRITTEN = re.compile(r"[A-Za-z'.]+")
_NAMES = {
    "a": "EY", "b": "B IY", "c": "S IY", "d": "D IY", "e": "IY", "f": "EH F", "g": "JH IY", "h": "EY CH", "i": "AY",
    "j": "JH EY", "k": "K EY", "l": "EH L", "m": "EH M", "n": "EH N", "o": "OW", "p": "P IY", "q": "K Y UW",
    "r": "AA R", "s": "EH S", "t": "T IY", "u": "Y UW", "v": "V IY", "w": "D AH B AH L Y UW", "x": "EH K S",
    "y": "W AY", "z": "Z IY",
}  # fmt: skip
_RULES = {
    "tion": "SH AH N", "sion": "ZH AH N", "ture": "CH ER", "ough": "AO", "augh": "AO", "eigh": "EY", "igh": "AY",
    "tch": "CH", "dge": "JH", "sch": "SH", "ai": "EY", "ay": "EY", "au": "AO", "aw": "AO", "ar": "AA R", "ea": "IY",
    "ee": "IY", "ei": "EY", "er": "ER", "eu": "UW", "ew": "UW", "ey": "IY", "ie": "IY", "ir": "ER", "oa": "OW",
    "oi": "OY", "oo": "UW", "or": "AO R", "ou": "AW", "ow": "OW", "oy": "OY", "ue": "UW", "ur": "ER", "ch": "CH",
    "ck": "K", "gh": "G", "gn": "N", "kn": "N", "ng": "NG", "ph": "F", "qu": "K W", "sh": "SH", "th": "TH",
    "wh": "W", "wr": "R", "ce": "S EH", "ci": "S IH", "cy": "S IY", "a": "AE", "b": "B", "c": "K", "d": "D",
    "e": "EH", "f": "F", "g": "G", "h": "HH", "i": "IH", "j": "JH", "k": "K", "l": "L", "m": "M", "n": "N",
    "o": "AA", "p": "P", "q": "K", "r": "R", "s": "S", "t": "T", "u": "AH", "v": "V", "w": "W", "x": "K S",
    "y": "IY", "z": "Z",
}  # fmt: skip
_SPELLING = re.compile("|".join(sorted(_RULES, key=len, reverse=True)))


class Spoken(NamedTuple):
    """How a word is said: an entry of the dictionary, which may have several pronunciations, or
    phones. guessed: by rules for letters.
    """

    entry: str = ""
    phones: tuple[str, ...] = ()
    guessed: bool = False


def pronounce(word: str, lookup: Lookup) -> Spoken:
    """A word as the frontend reports it: written, spelled (`U.S`), or phones between slashes.
    Raises Untimed for what is not English.
    """
    if word.startswith("/"):
        return Spoken(phones=_given(word))
    if not _WRITTEN.fullmatch(word):
        raise Untimed(Reason.LANGUAGE)
    letters = word.lower().replace(".", "")
    if "." in word:
        return _spelled(letters)
    for entry in (letters, letters.strip("'")):
        if lookup(entry) is not None:
            return Spoken(entry=entry)
    plain = letters.strip("'")
    stem, _, ending = plain.partition("'")
    if ending == "s" and (known := lookup(stem)):
        return Spoken(phones=(*known.split(), "Z"))
    if (word.isupper() and len(plain) > 1) or not set(plain) & set("aeiouy"):
        return _spelled(plain)
    return _compound(plain, lookup) or _by_rules(plain)


def _given(word: str) -> tuple[str, ...]:
    phones = tuple(phone.rstrip("012") for phone in word.strip("/").split())
    if not phones or not PHONES.issuperset(phones):
        raise Untimed(Reason.LANGUAGE)
    return phones


def _spelled(letters: str) -> Spoken:
    phones = tuple(phone for letter in letters if letter in _NAMES for phone in _NAMES[letter].split())
    if not phones:
        raise Untimed(Reason.LANGUAGE)
    return Spoken(phones=phones)


def _compound(word: str, lookup: Lookup) -> Spoken | None:
    """Of two known words, the first one as long as possible."""
    for cut in range(len(word) - _LEAST_PART, _LEAST_PART - 1, -1):
        parts = lookup(word[:cut]), lookup(word[cut:])
        if parts[0] and parts[1]:
            return Spoken(phones=(*parts[0].split(), *parts[1].split()))
    return None


def _by_rules(word: str) -> Spoken:
    phones = [phone for match in _SPELLING.finditer(word) for phone in _RULES[match[0]].split()]
    if len(phones) > 2 and word.endswith("e") and phones[-1] == "EH":
        phones.pop()
    # A doubled letter is one sound.
    single = [phone for place, phone in enumerate(phones) if not place or phone != phones[place - 1]]
    return Spoken(phones=tuple(single), guessed=True)
