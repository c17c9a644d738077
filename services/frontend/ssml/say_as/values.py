"""Parses the content of a `say-as` as a value of the kind that it names."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from services.frontend.ssml.say_as import chinese, english
from services.frontend.ssml.say_as.values import date_of
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
_CARDINAL = re.compile(_NUMBER)
_ORDINAL = re.compile(rf"(?:第|#|[Nn]o\.? ?)?(?P<whole>{_DIGITS})(?:st|nd|rd|th|\.)?", re.IGNORECASE)
_TELEPHONE = re.compile(r"\+?[0-9() ./x-]*[0-9][0-9() ./x-]*")
_TIME = re.compile(
    r"(?P<hours>[01]?[0-9]|2[0-4])(?:[:.：](?P<minutes>[0-5][0-9]))?(?:[:.：](?P<seconds>[0-5][0-9]))?\s?"
    r"(?P<half>[AaPp]\.?[Mm]\.?)?"
)
_CURRENCY = re.compile(
    rf"(?P<minus>[\u2212-]?)(?P<before>[$€£¥￥]|[A-Za-z]{{3}})?\s?{_NUMBER}\s?(?P<after>[$€£¥￥]|[A-Za-z]{{3}}|元)?",
)
_FRACTION = re.compile(
    r"(?P<sign>[+\u2212-]?)(?:(?P<whole>[0-9]{1,15})[ +])?(?P<above>[0-9]{1,15})\s?[/⁄]\s?(?P<below>[0-9]{1,15})"
)
_UNIT = re.compile(rf"{_NUMBER}\s?(?P<unit>[^\s0-9]{{1,12}})")


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
        if not _TELEPHONE.fullmatch(written):
            return None
        return ("+" if written.startswith("+") else "", *re.findall("[0-9]+", written))
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
    patterns = {"cardinal": _CARDINAL, "ordinal": _ORDINAL, "time": _TIME, "currency": _CURRENCY, "unit": _UNIT}
    match = patterns[kind].fullmatch(written)
    if match is None:
        return None
    if kind == "time":
        half = (match["half"] or "").lower()[:1]
        return (match["hours"], match["minutes"] or "", match["seconds"] or "", half)
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
