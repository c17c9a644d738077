"""The language of each span of a text, derived from its script, so that digits are read in the
language around them.

Letters decide: Han is Chinese; two or more Latin words are English; a single one (`iPhone 15发布`),
a name in capitals (`iPhone 16 Pro`) and words joined without a blank (`report.pdf`) belong to the
Chinese text around them; every other script, and Han mixed with kana, is a language without
normaliser. Other characters (digits, marks, blanks) and a short unit after a digit (`5km`) belong
to the adjacent word, else to the previous word, or after a mark to the next one.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from services.frontend.text.language import CHINESE, ENGLISH

OTHER = "und"
"""A language without normaliser (BCP-47: undetermined)."""
JAPANESE, KOREAN = "ja", "ko"
_SCRIPTS = {"HANGUL": KOREAN, "HIRAGANA": JAPANESE, "KATAKANA": JAPANESE, "KATAKANA-HIRAGANA": JAPANESE}
"""Language by the first word of the name that Unicode gives a letter."""
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
"""Capitalised words that begin English phrases and are not names."""
_MARKS = re.compile(r"[，。！？；：、,.!?;:…—(（)）]")


class LanguageSpan(NamedTuple):
    """A span of text and the language in which it is read."""

    language: str
    text: str


class _Group(NamedTuple):
    kind: str
    start: int
    end: int
    words: int
    ordinary: bool = False
    """Whether one of the words cannot be part of a name."""


def language_by_script(text: str, before: str = "", *, whole_unit: bool = True) -> str:
    """ "zh" as soon as there is a Han character (specification section 2.1), or "ja" when there are
    more than a third as many kana; else "en" where Latin letters are in the majority, else the
    language of the other script. Text without words but with Chinese marks is Chinese.

    before: language of the preceding text. It applies to a part without letters or with a single
    Latin word, which does not make a text English. When it is empty, a single word is "en" and a
    part without letters is "". whole_unit: `text` is a whole unit, not one of several runs whose
    words belong together.
    """
    count: Counter[str] = Counter()
    words = 0
    for atom in _ATOMS.finditer(text):
        count[atom.lastgroup or ""] += len(atom[0])
        words += atom.lastgroup == _LATIN and _is_word(atom[0]) and not _is_numbered(text, atom)
    if count[_HAN]:
        return JAPANESE if 3 * len(_KANA.findall(text)) > count[_HAN] else CHINESE
    if count[_FOREIGN] > count[_LATIN]:
        return _foreign_language(text)
    if before and (not count[_LATIN] or (whole_unit and words < 2)):
        return before
    if not words and _CHINESE_MARKS.search(text):
        return CHINESE
    return ENGLISH if count[_LATIN] else ""


def spans(text: str, language: str, readable: Collection[str] = ()) -> list[LanguageSpan]:
    """`text` as spans of one language each; joined they are the text. language: of the whole text,
    "zh" or "en". readable: the languages that the model supports; empty: all of them. A span of
    another language has no normaliser and never takes a word or number from its neighbours.
    """
    groups = _joined(_groups(text))
    if not readable or CHINESE in readable:
        groups = _joined(_assign_single_words(groups, language))
    if not groups:
        return [LanguageSpan(language, text)]
    borders = [0, *(_border(text, left.end, right.start) for left, right in pairwise(groups)), len(text)]
    languages = [_LANGUAGES.get(group.kind, OTHER) for group in groups]
    return [
        LanguageSpan(spoken if not readable or spoken in readable else OTHER, text[start:end])
        for spoken, (start, end) in zip(languages, pairwise(borders), strict=True)
        if start < end
    ]


_LANGUAGES = {_HAN: CHINESE, _LATIN: ENGLISH}


def _groups(text: str) -> list[_Group]:
    return [
        _Group(
            atom.lastgroup or "",
            atom.start(),
            atom.end(),
            _is_word(atom[0]) and not _goes_on(text, atom.start()) and not _is_numbered(text, atom),
            (atom[0] in _ORDINARY and not _is_numbered(text, atom)) or atom[0] == atom[0].lower(),
        )
        for atom in _ATOMS.finditer(text)
        if atom.lastgroup not in ("neutral", "sign")
    ]


def _goes_on(text: str, start: int) -> bool:
    """Whether a sign without blanks joins a word to the one before it: `report.pdf`."""
    return start > 1 and text[start - 1] in "._-/&@+" and text[start - 2].isascii() and text[start - 2].isalnum()


def _is_numbered(text: str, atom: re.Match[str]) -> bool:
    """Whether the atom is the letter of a number: `A17 Pro` has no article."""
    return len(atom[0]) == 1 and text[atom.end() : atom.end() + 1].isdigit()


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


def _assign_single_words(groups: list[_Group], language: str) -> list[_Group]:
    """A single Latin word or a name is not English: it takes the language of its neighbour, or that
    of the text when it has none.
    """
    decided: list[_Group] = []
    for place, group in enumerate(groups):
        if group.kind == _LATIN and (group.words < 2 or (language == CHINESE and not group.ordinary)):
            neighbours = [decided[-1].kind] if decided else [groups[place + 1].kind] if len(groups) > 1 else []
            group = group._replace(kind=neighbours[0] if neighbours else _HAN if language == CHINESE else _LATIN)
        decided.append(group)
    return decided


def _border(text: str, end: int, start: int) -> int:
    """The index in the gap between two groups at which the first one ends."""
    gap = text[end:start]
    numbers = [place for place, character in enumerate(gap) if character.isdigit()]
    if not numbers:
        return start
    first, last = numbers[0], numbers[-1]
    if not gap[:first].strip("$€£¥￥+-#(") and " " not in gap[:first]:
        return start
    mark = max((match.end() for match in _MARKS.finditer(gap, 0, first)), default=0)
    mark_follows = _MARKS.search(gap, last + 1)
    if " " not in gap[last:] and not mark_follows:
        return end + max(gap.rfind(" ", 0, last) + 1, mark)
    return end + mark if mark and not mark_follows else start


def _foreign_language(text: str) -> str:
    names = (unicodedata.name(character, "") for character in text if character.isalpha())
    scripts = (_SCRIPTS.get(name.split(" ")[0]) for name in names)
    return next(filter(None, scripts), OTHER)
