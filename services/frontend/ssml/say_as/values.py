"""Parses the content of a `say-as` as a value of the kind that it names. Dates are written in
digits, in the order that a `format` names.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from services.frontend.ssml.say_as import chinese, english
from services.frontend.text.language import CHINESE, ENGLISH

KINDS = {
    "cardinal": "cardinal", "number": "cardinal", "ordinal": "ordinal", "digits": "digits", "digit": "digits",
    "telephone": "telephone", "characters": "characters", "spell-out": "characters", "spell": "characters",
    "verbatim": "characters", "date": "date", "time": "time", "currency": "currency", "money": "currency",
    "fraction": "fraction", "unit": "unit", "measure": "unit",
}  # fmt: skip
"""Maps `interpret-as` to its kind."""
_DIGITS = r"[0-9]{1,3}(?:,[0-9]{3}){1,11}|[0-9]{1,36}"
_NUMBER = rf"(?P<sign>[+\u2212-]?)(?P<whole>{_DIGITS})(?:\.(?P<decimals>[0-9]{{1,36}}))?"
_PATTERNS = {
    "cardinal": re.compile(_NUMBER),
    "ordinal": re.compile(rf"(?:第|#|[Nn]o\.? ?)?(?P<whole>{_DIGITS})(?:st|nd|rd|th|\.)?", re.IGNORECASE),
    "time": re.compile(
        r"(?P<hours>[01]?[0-9]|2[0-4])(?:[:.：](?P<minutes>[0-5][0-9]))?(?:[:.：](?P<seconds>[0-5][0-9]))?\s?"
        r"(?P<half>[AaPp]\.?[Mm]\.?)?"
    ),
    "currency": re.compile(
        rf"(?P<minus>[\u2212-]?)(?P<before>[$€£¥￥]|[A-Za-z]{{3}})?\s?{_NUMBER}\s?(?P<after>[$€£¥￥]|[A-Za-z]{{3}}|元)?",
    ),
    "unit": re.compile(rf"{_NUMBER}\s?(?P<unit>[^\s0-9]{{1,12}})"),
}
_TELEPHONE = re.compile(r"\+?[0-9() ./x-]*[0-9][0-9() ./x-]*")
_FRACTION = re.compile(
    r"(?P<sign>[+\u2212-]?)(?:(?P<whole>[0-9]{1,15})[ +])?(?P<above>[0-9]{1,15})\s?[/⁄]\s?(?P<below>[0-9]{1,15})"
)


@dataclass(frozen=True)
class Value:
    """fields: by kind, the arguments of the functions of `english` and `chinese` for that kind."""

    kind: str
    fields: tuple[str, ...]
    written: str

    def words(self, language: str, spell: Callable[[str], str] | None) -> str:
        """The value in words of "zh" or "en"; as it is written in any other language. spell:
        returns the placeholder of phonemes in the text; None for a model that reads text.
        """
        if language == CHINESE:
            return chinese.WORDS[self.kind](*self.fields)
        if language == ENGLISH:
            return (
                english.characters(self.written, spell)
                if self.kind == "characters"
                else english.WORDS[self.kind](*self.fields)
            )
        return self.written


def value_of(kind: str, form: str, written: str) -> Value | None:
    """The value of `written`, with single blanks inside it and none around it; None when it is not
    of that kind.

    kind: a value of KINDS; form: the `format`.
    """
    fields = _fields(kind, form.strip().lower(), written)
    return None if fields is None else Value(kind, fields, written)


def _fields(kind: str, form: str, written: str) -> tuple[str, ...] | None:
    if kind == "characters":
        return (written,) if any(character.isalnum() for character in written) else None
    if kind == "digits":
        digits = re.sub(r"[\s,.-]", "", written)
        return (digits,) if re.fullmatch("[0-9]+", digits) else None
    if kind == "telephone":
        groups = ("+" if written.startswith("+") else "", *re.findall("[0-9]+", written))
        return groups if _TELEPHONE.fullmatch(written) else None
    if kind == "date":
        return date_of(written, form)
    if kind == "fraction":
        match = _FRACTION.fullmatch(written)
        return (
            None
            if match is None or not match["below"].strip("0")
            else (match["sign"], match["whole"] or "", match["above"], match["below"])
        )
    return _number(kind, written)


def _number(kind: str, written: str) -> tuple[str, ...] | None:
    match = _PATTERNS[kind].fullmatch(written)
    if match is None:
        return None
    if kind == "time":
        return (match["hours"], match["minutes"] or "", match["seconds"] or "", (match["half"] or "").lower()[:1])
    whole = match["whole"].replace(",", "")
    if kind == "ordinal":
        return (whole,)
    number = (match["sign"], whole, match["decimals"] or "")
    if kind == "currency":
        currency = english.CURRENCIES.get((match["before"] or match["after"] or "").upper())
        return None if currency is None else (match["minus"] or match["sign"], *number[1:], currency)
    if kind == "unit":
        unit = english.unit_of(match["unit"])
        return None if unit is None else (*number, unit)
    return number


FORMATS = ("ymd", "mdy", "dmy", "ydm", "ym", "my", "md", "dm", "y", "m", "d")
_GROUPS = re.compile(r"[0-9]{1,4}(?:[-/. 年月日]{1,2}[0-9]{1,4}){0,2}[日月年号]?")
_JOINED = {
    ("ymd", 8): (4, 2, 2),
    ("mdy", 8): (2, 2, 4),
    ("dmy", 8): (2, 2, 4),
    ("ydm", 8): (4, 2, 2),
    ("ym", 6): (4, 2),
    ("my", 6): (2, 4),
}
"""Digits of the parts when nothing separates them."""


def date_of(written: str, form: str) -> tuple[str, str, str] | None:
    """Year, month and day without leading zeros, "" for what the format lacks; None when `written`
    is not a date in that format.

    Without a format (""): year, month, day when the first part has four digits, else month, day,
    year.
    """
    parts = _parts(written, form)
    if parts is None:
        return None
    if not form:
        form = {3: "ymd" if len(parts[0]) == 4 else "mdy", 2: "ym" if len(parts[0]) == 4 else "md", 1: "y"}[len(parts)]
    if form not in FORMATS or len(form) != len(parts):
        return None
    fields = dict(zip(form, parts, strict=True))
    year, month, day = (fields.get(letter, "") for letter in "ymd")
    wrong = (month and not 1 <= int(month) <= 12) or (day and not 1 <= int(day) <= 31) or (year and not int(year))
    return None if wrong else (year.lstrip("0"), month.lstrip("0"), day.lstrip("0"))


def _parts(written: str, form: str) -> list[str] | None:
    widths = _JOINED.get((form or "ymd", len(written))) if written.isascii() and written.isdigit() else None
    if widths is not None:
        ends = [sum(widths[: place + 1]) for place in range(len(widths))]
        return [written[end - width : end] for width, end in zip(widths, ends, strict=True)]
    return re.findall("[0-9]+", written) if _GROUPS.fullmatch(written) else None
