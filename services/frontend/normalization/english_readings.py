"""English reading rules in their order, which run before the grammars.

Plain text is detected quickly: it costs one search for a character or a word that some rule reads.
"""

import re

from services.frontend.normalization import english_readings
from services.frontend.normalization.english import numerals, roman
from services.frontend.normalization.english.names import abbreviations, identifiers, technical_names
from services.frontend.normalization.english.numbers import (
    arithmetic,
    dates,
    money,
    plain_numbers,
    scientific,
    times,
    units,
)
from services.frontend.text.rules import Rule, apply_rules

_FIXED: tuple[Rule, ...] = (
    (re.compile(r"(?<![A-Za-z0-9])24/7(?![0-9/])"), "twenty four seven"),
    (re.compile(r"(?<![A-Za-z0-9/])9/11(?![0-9/])"), "nine eleven"),
    (re.compile(r"(?<![A-Za-z0-9/])50/50(?![0-9/])"), "fifty fifty"),
    (re.compile(r"(?<![\w&])#(?=[0-9]{1,3}(?![0-9A-Za-z]))"), "number "),
)
_WITH_FIGURES: tuple[Rule, ...] = (
    *numerals.RULES, *abbreviations.COUNTED, *_FIXED, *identifiers.RULES, *identifiers.RULES, *dates.RULES, *times.RULES,
    *plain_numbers.RULES, *arithmetic.IN_FRONT, *money.RULES, *plain_numbers.DECADES, *plain_numbers.MILLIONS,
)  # fmt: skip
_SIGNED = re.compile(r"[^A-Za-z0-9\s.,;:!?'’‘\"“”()\[\]…—–-]|(?<!\w)-\w|(?<!\w)\.\w")
_FIGURES = re.compile(r"[0-9½-¾⅐-⅞]")
_STOPPED = re.compile(r"(?<![A-Za-z])([A-Za-z]{1,8})\.")
_ABBREVIATED = abbreviations.KEYS | dates.KEYS
_JOINED = re.compile(r"[a-z][A-Z0-9]|[A-Z]{2}|\.[A-Za-z]")
_NUMERAL = re.compile(r" (?:[IVX](?![A-Za-z'’])|[ivx]{2,4}\b)")
_WORDS = re.compile(r"[A-Za-z]{3,}[0-9]?")
_MARKER = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z]|[ivx]{2,4})\)")
_UNIT = re.compile(r"\b(?:per|in) (?:[mck]?m|ft|[mk]g|k?W|[MGT]B|m[lL]|oz|lbs?|gal|hr|sec)")


def rewrite(text: str) -> str:
    """`text` with written forms as words, or in a form that the grammars read correctly."""
    figures, signed = _FIGURES.search(text) is not None, _SIGNED.search(text) is not None
    if figures or signed or (")" in text and _MARKER.search(text)):
        text = english_readings.with_markers(text)
    if signed:
        text = apply_rules(technical_names.PROGRAMMING, text)
        text = apply_rules(technical_names.RULES, text)
    elif "." in text and re.search(r"\.[A-Za-z]", text):
        text = apply_rules(technical_names.RULES, apply_rules(technical_names.PROGRAMMING, text))
    if figures:
        text = units.with_inches(apply_rules(units.RULES, apply_rules(_WITH_FIGURES, text)))
    if _UNIT.search(text):
        text = apply_rules(units.WITHOUT_FIGURE, text)
    if figures or signed:
        text = apply_rules(scientific.RULES, text)
        text = apply_rules(arithmetic.RULES, text)
        text = apply_rules(arithmetic.RULES, text)
    if "/" in text:
        text = apply_rules(technical_names.WORDS, text)
    if signed:
        text = apply_rules(english_readings.RULES, text)
    if _may_have_abbreviation(text):
        text = apply_rules(abbreviations.RULES, apply_rules(dates.SHORTENED, text))
    joined = _JOINED.search(text) is not None
    if joined or _NUMERAL.search(text):
        text = apply_rules(roman.RULES, text)
    if joined:
        text = identifiers.CITY_AND_STATE[0].sub(identifiers.CITY_AND_STATE[1], text)
    if not technical_names.SPOKEN.keys().isdisjoint(_WORDS.findall(text.lower())) or joined:
        text = apply_rules(technical_names.RULES, text)
    return apply_rules(plain_numbers.RULES, text) if figures else text


def _may_have_abbreviation(text: str) -> bool:
    """Whether a full stop may belong to an abbreviation."""
    stopped = _STOPPED.findall(text)
    return any(len(word) == 1 or word in _ABBREVIATED for word in stopped) or " vs " in text
