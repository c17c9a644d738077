"""Which language each stretch of a text is read in, told by its script, so that digits are read in
the language around them.

Letters decide: Han is Chinese; two Latin words or more are English; a single one (`iPhone 15发布`), a
name of capitals (`iPhone 16 Pro`) and what has no blank (`report.pdf`) belong to the Chinese text
around them; every other script, and Han among kana, is a language without normaliser. What is no
letter (digits, marks, blanks) and a short unit behind a digit (`5km`) goes with the word that it
touches, else with the word before it, or behind a mark with the one that follows.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from services.frontend.text.language import CHINESE, ENGLISH

OTHER = "und"
"""A language without normaliser (BCP-47: undetermined)."""
JAPANESE, KOREAN = "ja", "ko"
_HAN, _LATIN, _FOREIGN = "han", "latin", "foreign"
_HANS = r"\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff々〇"
_LATINS = r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
_VALUES = r"π²³¹¼-¾\u2070-\u209f\u2150-\u218f\u2460-\u24ff\u2776-\u2793"
_ATOMS = re.compile(
    rf"""
      (?P<neutral> [0-9][0-9.,:/-]*[A-Za-z°%µ]{{0,4}}(?:/[A-Za-z]{{1,2}})?(?![A-Za-z]) )
    | (?P<han> [{_HANS}]+ )
    | (?P<latin> [{_LATINS}](?:[{_LATINS}\u0300-\u036f]|['’](?=[A-Za-z]))* )
    | (?P<sign> [\u0370-\u03ffµ](?![\u0370-\u03ff\u1f00-\u1fff]) (?<![\u0370-\u03ff\u1f00-\u1fff][\u0370-\u03ff]) )
    | (?P<foreign> (?:(?![{_HANS}{_LATINS}{_VALUES}])[^\W\d_])+ )
    """,
    re.VERBOSE,
)
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa]")
_CHINESE_MARKS = re.compile("[\u3001\u3002《》「」【】！（），：；？]")
_ORDINARY = frozenset(
    (
        "A",
        "An",
        "And",
        "Are",
        "Do",
        "Hello",
        "Hi",
        "He",
        "How",
        "I",
        "In",
        "Is",
        "It",
        "My",
        "No",
        "On",
        "She",
        "That",
        "The",
        "They",
    )
) | {"This", "To", "We", "What", "Where", "Who", "Why", "Yes", "You"}
"""Words that begin English phrases, not names, though they have a capital."""
_MARKS = re.compile(r"[，。！？；：、,.!?;:…—(（)）]")


class Span(NamedTuple):
    """A stretch of text and the language that it is read in."""

    language: str
    text: str


class _Group(NamedTuple):
    kind: str
    start: int
    end: int
    words: int
    ordinary: bool = False
    """Whether a word is among them that no name has."""


def language_by_script(text: str, before: str = "", *, alone: bool = True) -> str:
    """ "zh" as soon as there is a Han character (specification section 2.1), unless more than a
    third as many kana say Japanese; else "en" where Latin letters are in the majority, else the
    language that has no normaliser. Without a word, Chinese marks say Chinese.

    before: the language of the text in front of this part; a part without letters, or with a single
    Latin word, which is no English by itself, is read in it. Empty, in front of everything: then a
    single word is "en", and what has no letters "". alone: `text` is no run of a unit of several,
    whose one word may have others around it.
    """
    count: Counter[str] = Counter()
    words = 0
    for atom in _ATOMS.finditer(text):
        count[atom.lastgroup or ""] += len(atom[0])
        words += atom.lastgroup == _LATIN and _is_word(atom[0])
    if count[_HAN]:
        return JAPANESE if 3 * len(_KANA.findall(text)) > count[_HAN] else CHINESE
    if count[_FOREIGN] > count[_LATIN]:
        return _foreign_language(text)
    if before and (not count[_LATIN] or (alone and words < 2)):
        return before
    if not words and _CHINESE_MARKS.search(text):
        return CHINESE
    return ENGLISH if count[_LATIN] else ""


def spans(text: str, language: str, readable: Collection[str] = ()) -> list[Span]:
    """`text` in stretches of one language each; joined they are the text. language: of the text as
    a whole, "zh" or "en". readable: the only languages that the model speaks, none: it speaks all.
    A stretch of another one is without normaliser and draws no word or number of its neighbours
    into it."""
    groups = _joined(_groups(text))
    if not readable or CHINESE in readable:
        groups = _joined(_weak_ones_decided(groups, language))
    if not groups:
        return [Span(language, text)]
    found, start = [], 0
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        end = len(text) if following is None else _border(text, group.end, following.start)
        spoken = _LANGUAGES.get(group.kind, OTHER)
        found.append(Span(spoken if not readable or spoken in readable else OTHER, text[start:end]))
        start = end
    return [span for span in found if span.text]


_LANGUAGES = {_HAN: CHINESE, _LATIN: ENGLISH}


def _groups(text: str) -> list[_Group]:
    return [
        _Group(
            atom.lastgroup or "",
            atom.start(),
            atom.end(),
            _is_word(atom[0]) and not _goes_on(text, atom.start()),
            _is_ordinary(atom[0]),
        )
        for atom in _ATOMS.finditer(text)
        if atom.lastgroup not in ("neutral", "sign")
    ]


def _goes_on(text: str, start: int) -> bool:
    """Whether a sign without blanks joins a word to the one before it: `report.pdf`."""
    return start > 1 and text[start - 1] in "._-/&@+" and text[start - 2].isascii() and text[start - 2].isalnum()


def _is_ordinary(letters: str) -> bool:
    return letters in _ORDINARY or letters == letters.lower()


def _is_word(letters: str) -> bool:
    if len(letters) == 1 and letters.isascii():
        return letters in "IAa"
    return letters != letters.upper() or not letters.isascii()


def _joined(groups: list[_Group]) -> list[_Group]:
    joined: list[_Group] = []
    for group in groups:
        if joined and joined[-1].kind == group.kind:
            before = joined.pop()
            group = _Group(
                group.kind, before.start, group.end, before.words + group.words, before.ordinary or group.ordinary
            )
        joined.append(group)
    return joined


def _weak_ones_decided(groups: list[_Group], language: str) -> list[_Group]:
    """A single Latin word is no English: it goes with its neighbour, one by itself with the
    language of the text. So does a name.
    """
    decided: list[_Group] = []
    for place, group in enumerate(groups):
        if group.kind == _LATIN and (group.words < 2 or (language == CHINESE and not group.ordinary)):
            neighbours = [decided[-1].kind] if decided else [groups[place + 1].kind] if len(groups) > 1 else []
            group = group._replace(kind=neighbours[0] if neighbours else _HAN if language == CHINESE else _LATIN)
        decided.append(group)
    return decided


def _border(text: str, end: int, start: int) -> int:
    """Where in the gap between two groups the first one stops."""
    gap = text[end:start]
    numbers = [place for place, character in enumerate(gap) if character.isdigit()]
    if not numbers:
        return start
    first, last = numbers[0], numbers[-1]
    if not gap[:first].strip("$€£¥￥+-#(") and " " not in gap[:first]:
        return start
    if " " not in gap[last:] and not _MARKS.search(gap, last + 1):
        blank = gap.rfind(" ", 0, last)
        mark = max((found.end() for found in _MARKS.finditer(gap, 0, first)), default=0)
        return end + max(blank + 1, mark)
    mark = max((found.end() for found in _MARKS.finditer(gap, 0, first)), default=0)
    return end + mark if mark and not _MARKS.search(gap, last + 1) else start


def _foreign_language(text: str) -> str:
    for character in text:
        if character.isalpha():
            name = unicodedata.name(character, "")
            if name.startswith("HANGUL"):
                return KOREAN
            if name.startswith(("HIRAGANA", "KATAKANA")):
                return JAPANESE
    return OTHER
