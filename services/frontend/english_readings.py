"""Written forms that the grammars read wrongly in English, rewritten in front of them: into words, or into a form that they read rightly.

Each rule is linear in the length of the text: every repetition is bounded or cannot be entered again behind a failure.
"""

import re
from collections.abc import Callable

from services.frontend.phonemes import numbers

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_CURRENCIES = {"$": ("dollar", "cent"), "£": ("pound", "pence"), "€": ("euro", "cent")}
_CODES = {"USD": "US dollars", "EUR": "euros", "GBP": "pounds", "CNY": "yuan", "RMB": "yuan", "JPY": "yen"}
_TENS = {
    "1": "tens", "2": "twenties", "3": "thirties", "4": "forties", "5": "fifties", "6": "sixties", "7": "seventies", "8": "eighties",
    "9": "nineties",
}  # fmt: skip
_NUMBER = r"[0-9]{1,3}(?:,[0-9]{3}){1,4}(?![0-9]|,[0-9])"
Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str] | str]


def _digits(text: str) -> str:
    groups = [group for group in re.split(r"[^0-9]+", text) if group]
    return ("plus " if text.startswith("+") else "") + ", ".join(" ".join(numbers.digit_by_digit(group)) for group in groups)


def _money(found: re.Match[str]) -> str:
    units, cents = found["units"].replace(",", ""), found["cents"] or ""
    unit, part = _CURRENCIES[found["sign"]]
    if not units.strip("0") and cents.strip("0"):
        count = int(cents)
        return " ".join(numbers.whole(str(count))) + " " + (part if count == 1 or part == "pence" else f"{part}s")
    return " ".join(numbers.amount(units.lstrip("0") or "0", cents, unit, part))


def _grouped(found: re.Match[str]) -> str:
    whole = found["whole"].replace(",", "")
    words = numbers.whole(whole)
    return " ".join([*words, "point", *numbers.digit_by_digit(found["decimals"])] if found["decimals"] else words)


def _decade(found: re.Match[str]) -> str:
    century, tens = found["century"], found["tens"]
    if tens == "0":
        return "two thousands" if century == "20" else " ".join([*numbers.whole(century), "hundreds"])
    return " ".join([*numbers.whole(century), _TENS[tens]])


def _dotted(found: re.Match[str]) -> str:
    groups = found[0].split(".")
    if len(groups) == 4:
        return " dot ".join(" ".join(numbers.digit_by_digit(group)) for group in groups)
    return " point ".join(" ".join(numbers.whole(group)) for group in groups)


def _day(found: re.Match[str]) -> str:
    year = f" {found['year']}" if found["year"] else ""
    return f"the {' '.join(numbers.ordinal(found['day']))} of {found['month']}{year}"


def _height(found: re.Match[str]) -> str:
    return f"{found['feet']} foot {found['inches']}"


_RULES: tuple[Rule, ...] = (
    (re.compile(r"(?<=[0-9])[–‒−](?=[0-9])"), "-"),
    (re.compile(r"(?<![A-Za-z0-9])(?:24/7)(?![0-9/])"), "twenty four seven"),
    (re.compile(r"(?<![A-Za-z0-9/])9/11(?![0-9/])"), "nine eleven"),
    (
        re.compile(r"(?<![0-9.,/-])\+(?:[0-9]{7,15}|[0-9]{1,3}[ -]?(?:\([0-9]{1,4}\)[ -]?)?[0-9]{2,4}(?:[ -][0-9]{2,4}){1,5})(?![0-9])"),
        lambda found: _digits(found[0]),
    ),
    (
        re.compile(r"(?<![0-9.,/$-])(?:1[ .-])?(?:\([0-9]{3}\)[ ]?|[0-9]{3}[ .-])[0-9]{3}[.-][0-9]{4}(?![0-9])"),
        lambda found: _digits(found[0]),
    ),
    (
        re.compile(
            r"(?P<lead>\b(?:call|phone|tel|telephone|dial|fax|number|contact|text|at|on)\b[^\d\n.!?]{0,20})(?P<phone>[0-9]{3}-[0-9]{4})(?![0-9-])",
            re.IGNORECASE,
        ),
        lambda found: found["lead"] + _digits(found["phone"]),
    ),
    (
        re.compile(r"(?<![0-9.,€])(?P<amount>[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,12})(?P<cents>\.[0-9]{2})? ?€(?![0-9])"),
        lambda found: f"€{found['amount']}{found['cents'] or ''}",
    ),
    (
        re.compile(
            r"(?P<sign>[$£€])[ ]?(?P<units>[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,12})(?:\.(?P<cents>[0-9]{2}))?(?![0-9]|[.,][0-9])"
            r"(?![ ]?(?:thousand|million|billion|trillion|bn|[kKmMbB])\b)"
        ),
        _money,
    ),
    (re.compile(r"(?<![A-Za-z0-9.,])(?P<century>1[1-9]|20)(?P<tens>[0-9])0['’]?s(?![A-Za-z0-9])"), _decade),
    (re.compile(r"(?<![0-9.])[0-9]{1,4}(?:\.[0-9]{1,4}){2,5}(?![0-9]|\.[0-9])"), _dotted),
    (
        re.compile(
            rf"(?<![0-9.,$£€/-])(?P<whole>{_NUMBER})(?:\.(?P<decimals>[0-9]{{1,20}}))?(?=\s+[A-Za-z]{{4}}|[.,;:!?]*(?:\s|$))(?!\s+(?:mph|km/h)\b)"
        ),
        _grouped,
    ),
    (
        re.compile(
            rf"(?<![0-9.,/$:-])(?:the )?(?P<day>[12]?[1-9]|[123]0|31) (?P<month>{_MONTHS})(?:,? (?P<year>[12][0-9]{{3}}))?(?![A-Za-z0-9])"
        ),
        _day,
    ),
    (
        re.compile(rf"\b(?P<month>{_MONTHS}) (?P<day>[12]?[1-9]|[123]0|31)(?![0-9A-Za-z:%/-]|[.,][0-9]| ?[ap]\.?m)"),
        lambda found: f"{found['month']} {' '.join(numbers.ordinal(found['day']))}",
    ),
    (re.compile(r"\b[Nn]o\. ?(?=[0-9])|(?<![\w&])#(?=[0-9])"), "number "),
    (re.compile(r"\b[Nn]os\. ?(?=[0-9])"), "numbers "),
    (re.compile(r"\b(?P<base>[0-9]{1,12}) ?\^ ?(?P<power>[0-9]{1,4})\b"), r"\g<base> to the power of \g<power>"),
    (re.compile(r"\b(?P<base>[0-9]{1,4}(?:\.[0-9]{1,8})?)e[+]?(?P<power>[0-9]{1,3})\b"), r"\g<base> times ten to the power of \g<power>"),
    (re.compile(r"(?<![A-Za-z0-9])(?!0x)(?P<left>[0-9]{1,9})[ ]?[x×](?=[ ]?[0-9])"), r"\g<left> times "),
    (re.compile(r"(?<![A-Za-z0-9.,])(?P<count>[0-9]{1,3}(?:\.[0-9]{1,2})?)k(?![A-Za-z0-9])"), r"\g<count> thousand"),
    (re.compile(r"(?<![0-9])(?P<feet>[1-9])['’′](?P<inches>1[01]|[0-9])(?:[\"”″]|'')"), _height),
    (re.compile(r"(?P<amount>[0-9]) ?(?P<code>USD|EUR|GBP|CNY|RMB|JPY)\b"), lambda found: f"{found['amount']} {_CODES[found['code']]}"),
    (re.compile(r"(?<=\s)vs\.?(?=\s)"), "versus"),
)
_INTERESTING = re.compile(r"[0-9]|\bvs\b")


def rewritten(text: str) -> str:
    """`text` with money and cents, grouped and dotted numbers, decades, dates, telephone numbers, ranges with a long dash, powers, heights
    and the like in a form that is read rightly behind."""
    if not _INTERESTING.search(text):
        return text
    for pattern, spoken in _RULES:
        text = pattern.sub(spoken, text)
    return text
