"""Dates written in digits, in the order that a `format` names."""

import re

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
    if (month and not 1 <= int(month) <= 12) or (day and not 1 <= int(day) <= 31) or (year and not int(year)):
        return None
    return year.lstrip("0"), month.lstrip("0"), day.lstrip("0")


def _parts(written: str, form: str) -> list[str] | None:
    widths = _JOINED.get((form or "ymd", len(written))) if written.isascii() and written.isdigit() else None
    if widths is not None:
        ends = [sum(widths[: place + 1]) for place in range(len(widths))]
        return [written[end - width : end] for width, end in zip(widths, ends, strict=True)]
    return re.findall("[0-9]+", written) if _GROUPS.fullmatch(written) else None
