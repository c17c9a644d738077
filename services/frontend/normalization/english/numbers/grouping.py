"""Normalises figures for all later rules: long dashes between them become hyphens, groups of three
with blanks get commas.
"""

import re

from services.frontend.text.rules import Rule

_NARROW = "\u00a0\u2009\u202f\u2007"
_NOT_BEHIND = r"(?<![\w.,/-])"


def _with_commas(match: re.Match[str]) -> str:
    return re.sub(rf"[ {_NARROW}]", ",", match[0])


def _american(match: re.Match[str]) -> str:
    whole, _, cents = match[0].partition(",")
    return f"{whole.replace('.', ',')}.{cents}"


RULES: tuple[Rule, ...] = (
    (
        re.compile(
            r"(?<![\w.,])[0-9]{1,3}(?:\.[0-9]{3}){0,4},[0-9]{2}(?=[ ]?€)|(?<=€)[0-9]{1,3}(?:\.[0-9]{3}){0,4},[0-9]{2}"
            r"(?![0-9.,])"
        ),
        _american,
    ),
    (re.compile(r"(?<=[0-9%°])[ ]?[–‒−—](?=[$£€¥₹]?[0-9])|(?<=[0-9] )[–‒—](?= [0-9])"), "-"),
    (re.compile(r"(?<=[0-9][kKmMbB])[ ]?[–‒−—](?=[$£€¥₹]?[0-9])"), "-"),
    (re.compile(r"(?<![\w)])−(?=[0-9.$£€])"), "-"),
    # Non-breaking blanks are written between groups and hardly anywhere else.
    (re.compile(rf"{_NOT_BEHIND}[0-9]{{1,3}}(?:[{_NARROW}][0-9]{{3}}){{1,5}}(?![0-9]|[{_NARROW}][0-9])"), _with_commas),
    (re.compile(rf"{_NOT_BEHIND}[1-9][0-9]?(?:[ ][0-9]{{3}}){{2,5}}(?![0-9-]|[ ][0-9])"), _with_commas),
    (re.compile(rf"{_NOT_BEHIND}[1-9][0-9]{{0,2}}(?:[ ][0-9]{{3}}){{0,4}}[ ]000(?![0-9-]|[ ][0-9])"), _with_commas),
    # A single blank may also separate two numbers: an amount of something follows.
    (
        re.compile(
            r"(?<=[a-z] )[1-9][0-9]{0,2} [0-9]{3}(?= "
            r"(?:[a-z]{3}|(?:k?m|[kcm]?g|km²|m²|m³|l|L|ft|lb|[kM]Wh?|€)(?![A-Za-z0-9])))"
        ),
        _with_commas,
    ),
)
