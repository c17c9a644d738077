"""Dates with months as words or figures, abbreviated months and weekdays, quarters and fiscal
years.
"""

import re

from services.frontend.normalization.english import numerals
from services.frontend.text.rules import Rule

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_SHORT_MONTHS = {month[:3]: month for month in MONTHS if month != "May"} | {"Sept": "September"}
_DAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Weds": "Wednesday", "Thu": "Thursday",
    "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip
_LONG = "|".join(MONTHS)
_SHORT = "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec"
_MONTH = rf"(?P<month>{_LONG}|(?:{_SHORT})\b\.?)"
_DAY = r"(?P<day>0?[1-9]|[12][0-9]|3[01])"
_WEEKDAY = "Mon|Tues?|Weds?|Thu(?:rs?)?|Fri|Sat|Sun"
_YEAR = r"[12][0-9]{3}"
_APART = r"(?<![\w.,/$£€:-])"
_DATED = (
    r"\b(?:on|by|until|till|before|after|since|from|dated|due|date|is|was|starts?|started|ends?|ended|begins?|between|"
    r"through|to|and|of|for|ships?|shipped|arriv(?:es?|ed|ing)|leaves?|opens?|expires?|launche[sd]|delivery|scheduled|"
    r"born|Mon(?:day)?|Tue(?:sday)?|Wed(?:nesday)?|Thu(?:rsday)?|Fri(?:day)?|Sat(?:urday)?|Sun"
    r"(?:day)?)[.,:]?[ ]$"
)
_IS_DATED = re.compile(_DATED, re.IGNORECASE)
_MEASURED = re.compile(
    "[ ](?:of|cups?|inch|inches|miles?|mile|teaspoons?|tablespoons?|tsp|tbsp|cup|in|oz|lb|pounds?|majority|full|empty|"
    r"done|complete|time|rating|stars?|points?)\b"
)


def month_of(written: str) -> str:
    """The full name of a month that may be abbreviated."""
    name = written.rstrip(".")
    return _SHORT_MONTHS.get(name, name)


def _ordinal(day: str) -> str:
    return numerals.ordinal(day.lstrip("0"))


def _in_year(year: str | None) -> str:
    """The year of four digits, or of its last two, after a blank; empty where there is none."""
    if not year:
        return ""
    return f" {numerals.year(year) if len(year) == 4 else numerals.pair(year)}"


def _month_first(match: re.Match[str]) -> str:
    other = f"{month_of(match['month2'])} " if match["month2"] else ""
    until = f" to {other}{_ordinal(match['last'])}" if match["last"] else ""
    year = f"{match['gap'] or ' '}{numerals.year(match['year'])}" if match["year"] else ""
    return f"{month_of(match['month'])} {_ordinal(match['day'])}{until}{year}"


def _day_first(match: re.Match[str]) -> str:
    first = f"{_ordinal(match['first'])} to " if match["first"] else ""
    return f"the {first}{_ordinal(match['day'])} of {month_of(match['month'])}{_in_year(match['year'])}"


def _of(year: str, month: str, day: str, written: str) -> str:
    """A date in figures; an invalid one stays unchanged."""
    is_date = 1 <= int(month) <= 12 and 1 <= int(day) <= 31
    return f"the {_ordinal(day)} of {MONTHS[int(month) - 1].lower()}{_in_year(year)}" if is_date else written


def _stamp(match: re.Match[str]) -> str:
    seconds = f":{match['seconds']}" if match["seconds"] not in (None, "00") else ""
    day = _of(match["year"], match["month"], match["day"], match[0])
    if day == match[0]:
        return day
    return f"{day} at {match['time']}{seconds}{' UTC' if match['zone'] else ''}"


def _slashed(match: re.Match[str]) -> str:
    first, second = match["first"], match["second"]
    # Month first, as Americans write it, unless there is no such month.
    month, day = (second, first) if int(first) > 12 else (first, second)
    return _of(match["year"], month, day, match[0])


def _month_and_day(match: re.Match[str]) -> str:
    month, day = int(match["month"]), int(match["day"])
    before = match.string[max(0, match.start() - 16) : match.start()]
    is_date = (
        1 <= month <= 12
        and 1 <= day <= 31
        and month != day
        and not _MEASURED.match(match.string, match.end())
        and (month > day or day > 16 or _IS_DATED.search(before))
    )
    return f"{MONTHS[month - 1]} {_ordinal(match['day'])}" if is_date else match[0]


def _quarter(match: re.Match[str]) -> str:
    return f"{match['letter']} {numerals.cardinal(match['number'])}{_in_year(match['year'])}"


def _fiscal_year(match: re.Match[str]) -> str:
    return f"fiscal year{_in_year(match['year'])}"


_TAIL = (
    r"(?![0-9A-Za-z:%/]|-[0-9]|[.,][0-9]|[ "
    r"]?(?:[ap]\.?m\b|[AP]M\b|o'clock|percent|million|billion|people|times|degrees|"
    "dollars|miles|of the))"
)
RULES: tuple[Rule, ...] = (
    (
        re.compile(
            rf"{_APART}(?P<year>{_YEAR})-(?P<month>[01][0-9])-(?P<day>[0-3][0-9])T(?P<time>[0-2][0-9]:[0-5][0-9])"
            r"(?::(?P<seconds>[0-5][0-9])(?:\.[0-9]{1,9})?)?(?P<zone>Z)?(?![\w:+-]|[.,][0-9])"
        ),
        _stamp,
    ),
    (
        re.compile(
            rf"\b(?P<day>{_WEEKDAY})(?=,?:?[ ](?:(?:{_LONG}|(?:{_SHORT})\b\.?)[ ][0-9]|[0-9]{{1,2}}"
            rf"(?::[0-9]{{2}}|/[0-9]{{1,2}}|[ ]?(?:[ap]\.?m|[AP]M)|[ ]?[-–][ ]?[0-9])))"
        ),
        lambda match: _DAYS[match["day"]],
    ),
    (
        re.compile(
            rf"\b{_MONTH}[ ]{_DAY}(?:st|nd|rd|th)?(?:[ ]?-[ ]?(?:(?P<month2>{_LONG}|(?:{_SHORT})\b\.?)[ ])"
            "?(?P<last>[12]?[0-9]|3[01])(?:st|nd|rd|th)?)?"
            rf"(?:(?P<gap>,?[ ])(?P<year>{_YEAR})\b)?{_TAIL}"
        ),
        _month_first,
    ),
    (
        re.compile(
            f"{_APART}(?:[Tt]he )?(?:(?P<first>[12]?[0-9]|3[01])(?:st|nd|rd|th)?-)?{_DAY}(?:st|nd|rd|th)?[ ](?:of )"
            rf"?{_MONTH}(?:,?[ ](?P<year>{_YEAR})\b)?(?![A-Za-z0-9])"
        ),
        _day_first,
    ),
    (
        re.compile(rf"\b{_MONTH}(?P<gap>,?[ ])(?:of )?(?P<year>{_YEAR})(?![0-9%]|[.,][0-9])"),
        lambda match: f"{month_of(match['month'])}{match['gap']}{numerals.year(match['year'])}",
    ),
    (
        re.compile(
            rf"{_APART}(?P<year>{_YEAR})(?P<sign>[-/.])(?P<month>[01]?[0-9])(?P=sign)(?P<day>[0-3]?[0-9])"
            rf"(?![0-9/-]|[.][0-9])"
        ),
        lambda match: _of(match["year"], match["month"], match["day"], match[0]),
    ),
    (
        re.compile(
            rf"{_APART}(?P<first>[0-3]?[0-9])/(?P<second>[0-3]?[0-9])/(?P<year>{_YEAR}|[0-9]{{2}})(?![0-9/-]|[.][0-9])"
        ),
        _slashed,
    ),
    (
        re.compile(rf"{_APART}(?P<first>[0-3]?[0-9])-(?P<second>[0-3]?[0-9])-(?P<year>{_YEAR})(?![0-9/-]|[.][0-9])"),
        _slashed,
    ),
    (
        re.compile(rf"{_APART}(?P<day>[0-3]?[0-9])\.(?P<month>[01]?[0-9])\.(?P<year>{_YEAR})(?![0-9/-]|[.][0-9])"),
        lambda match: _of(match["year"], match["month"], match["day"], match[0]),
    ),
    (
        re.compile(r"(?<![\w.,/$£€:-])(?<![0-9] )(?P<month>1[0-2]|0?[1-9])/(?P<day>[0-3]?[0-9])(?![\w/%]|[.,-][0-9])"),
        _month_and_day,
    ),
    (
        re.compile(rf"\b(?P<letter>[QH])(?P<number>[1-4])(?:(?:[ /]|[ ]?['’])(?P<year>{_YEAR}|[0-9]{{2}}))?\b(?![%/])"),
        _quarter,
    ),
    (re.compile(rf"\bFY[ ]?['’]?(?P<year>{_YEAR}|[0-9]{{2}})\b"), _fiscal_year),
    (
        re.compile(
            r"(?P<before>\b(?:of|in|since|summer|winter|spring|fall|from|and|to|by) "
            r")['’](?P<year>[0-9]{2})(?![0-9A-Za-z'’])"
        ),
        lambda match: f"{match['before'] or ''}{numerals.pair(match['year'])}",
    ),
)
_BEHIND_A_DAY = (
    r"(?=,?[ ](?:(?:and|or|at|from|to|through|morning|afternoon|evening|night|the|in)\b|[0-9]|-|(?:Mon|Tue|Wed|Thu|Fri|"
    "Sat|Sun|Jan|Feb|Mar|Apr|"
    r"May|Jun|Jul|Aug|Sep|Oct|Nov|Dec))|,)"
)
KEYS = frozenset((*_SHORT_MONTHS, *_DAYS))
"""Months and weekdays that a full stop may follow."""
WEEKDAYS: Rule = (
    re.compile(rf"\b(?P<first>{_WEEKDAY})\.?[ ]?[-–][ ]?(?P<last>{_WEEKDAY})\b\.?"),
    lambda match: f"{_DAYS[match['first']]} to {_DAYS[match['last']]}",
)
BARE_WEEKDAYS: tuple[Rule, ...] = (
    (
        re.compile(
            r"\b(?P<day>(?:Tues?|Weds?|Thu(?:rs?)?|Fri)(?=[ ](?:at (?:[0-9]|noon\b|midnight\b)|morning\b|afternoon\b|"
            rf"evening\b|night\b|the [0-9]|(?:and|or|to|through) (?:{_WEEKDAY})\b))|"
            r"(?<![Tt]he )(?:Mon|Sat|Sun)(?=[ ](?:and|or|to|through) (?:Tues?|Weds?|Thu(?:rs?)?|Fri)(?![A-Za-z'’.]|"
            r"[ ][A-Z])))"
        ),
        lambda match: _DAYS[match["day"]],
    ),
    (
        re.compile(
            rf"(?<=day )(?P<between>and|or|to|through) (?P<day>{_WEEKDAY})(?![A-Za-z'’.]|[ ][A-Z])|"
            r"(?P<before>\b(?:[Oo]n|by|until|till|[Nn]ext|[Ll]ast|this|[Ee]very|each)) "
            r"(?P<last>Tues?|Weds?|Thu(?:rs?)?|Fri)(?![A-Za-z'’.]|[ ][A-Z])"
        ),
        lambda match: f"{match['between'] or match['before']} {_DAYS[match['day'] or match['last']]}",
    ),
)
"""Abbreviations without a full stop that are no words."""
SHORTENED: tuple[Rule, ...] = (
    (re.compile(rf"\b(?P<day>{_WEEKDAY})\.{_BEHIND_A_DAY}"), lambda match: _DAYS[match["day"]]),
    (
        re.compile(
            r"\b(?P<before>(?:on|every|each|next|last|this|by|until|and|or|to|through|from|for|since|before|after|"
            rf"closed|open),? )(?P<day>{_WEEKDAY})(?P<dot>\.)(?=[ ]|$|[,;)])"
        ),
        lambda match: f"{match['before']}{_DAYS[match['day']]}{_stop(match)}",
    ),
    (
        re.compile(r"\b(?P<day>Mon|Tues?|Weds?|Thurs?|Thur|Fri)(?P<dot>\.)(?![A-Za-z0-9])"),
        lambda match: _DAYS[match["day"]] + _stop(match),
    ),
    (
        re.compile(rf"\b(?P<month>{_SHORT})(?P<dot>\.)(?![A-Za-z0-9])"),
        lambda match: month_of(match["month"]) + _stop(match),
    ),
)


def _stop(match: re.Match[str]) -> str:
    """The full stop stays at the end of the text, and before a capital that is not the name of a
    day or month.
    """
    after = match.string[match.end() : match.end() + 4]
    return "." if not after.strip() or (after[:1] == " " and after[1:2].isupper()) else ""
