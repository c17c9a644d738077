"""Markers of a list within running text: `1) two eggs, 2) a cup`, `(a) Sign here.`"""

import re

from services.frontend.normalization.english import numerals
from services.frontend.normalization.english.roman import value
from services.frontend.text.rules import Rule, apply_rules

_FIRST = re.compile(r"(?:^|\n|: )1\.[ ]+[A-Za-z\"“‘']")
_OPEN = r"(?:^|(?<=\n)|(?<=[.,;:!?] )|(?<=[a-z] ))"


def _marked(match: re.Match[str]) -> str:
    mark = match["mark"]
    return f"{numerals.cardinal(mark) if mark.isdigit() else mark.upper()}, "


def _roman(match: re.Match[str]) -> str:
    return f"{numerals.cardinal(str(value(match['mark'])))}, "


RULES: tuple[Rule, ...] = (
    (re.compile(rf"{_OPEN}\(?(?P<mark>[0-9]{{1,2}}|[a-h]|[A-H])\)[ ]+(?=[A-Za-z\"“‘'$£€0-9])"), _marked),
    (re.compile(rf"{_OPEN}\(?(?P<mark>i{{1,3}}|iv|vi{{0,3}}|ix|x)\)[ ]+(?=[A-Za-z\"“‘'$£€0-9])"), _roman),
    (re.compile(r"(?:^|(?<=\n))(?P<mark>[1-9][0-9]?)\.[ ]+(?=[A-Za-z\"“‘'])"), _marked),
)
_BEHIND_A_FIRST: tuple[Rule, ...] = (
    (re.compile(r"(?<=[.!?:;,] )(?P<mark>[1-9][0-9]?)\.[ ]+(?=[A-Za-z\"“‘'])"), _marked),
)


def with_markers(text: str) -> str:
    """`text` with its markers as words. Within a line a number with a full stop is a marker only
    where the list begins with 1.
    """
    begins = _FIRST.search(text) is not None
    text = apply_rules(RULES, text)
    return apply_rules(_BEHIND_A_FIRST, text) if begins else text
