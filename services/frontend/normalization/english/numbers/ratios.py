"""Two numbers with a slash or hyphen between them: fractions, marks, blood pressure, scores,
ranges.
"""

import re

from services.frontend.normalization.english import numerals
from services.frontend.normalization.english.numerals import ALONE, FRACTION_SIGNS, NUMBER, QUANTITY, spoken_quantity
from services.frontend.text.rules import Rule

_MARKED = re.compile(
    r"\b(?:got|get|gets|getting|scored?|scores|scoring|rated|rating|rate|grade|graded|marks?|answered|gave|give|passed)\b[^.!?\n]{0,24}$",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    r"\b(?:page|step|part|slide|question|episode|task|day|round|attempt|chapter|lesson|level)[ ]$", re.IGNORECASE
)
_PRESSURE = re.compile(r"\b(?:pressure|BP|bp|reading)\b[^.!?\n]{0,24}$")
_JUDGED = re.compile(
    "[ ](?:on|for|in)[ ](?:the|my|his|her|our|their|this|that|a)?[ ]?(?:quiz|test|exam|final|midterm|homework|paper|"
    r"assignment|review|survey)\b|[ ](?:stars?|points?|rating|correct|questions)\b"
)
_RHYTHM = re.compile(r"[ -](?:time|rhythms?|meters?|metres?|beats?|grooves?|signature|feel|pattern)\b")
_YEARS = r"(?:1[1-9]|20)[0-9]{2}"


def _slash(match: re.Match[str]) -> str:
    above, below = match["above"], match["below"]
    before, left, right = match.string[max(0, match.start() - 40) : match.start()], int(above), int(below)
    if (left == right and left > 1) or (right in (2, 4, 8, 16) and _RHYTHM.match(match.string, match.end())):
        return f"{numerals.cardinal(above)} {numerals.cardinal(below)}"
    if _PRESSURE.search(before) or (left > right and left >= 80 and 40 <= right <= 140):
        return f"{_hundreds(above)} over {numerals.cardinal(below)}"
    if _COUNTED.search(before):
        return f"{numerals.cardinal(above)} of {numerals.cardinal(below)}"
    marked = _MARKED.search(before) is not None or _JUDGED.match(match.string, match.end()) is not None
    if (
        (marked and right >= 5)
        or (right == 100 and left > 1)
        or (right == 10 and left > 3 and match.string[match.end() : match.end() + 5] != " of a")
    ):
        return f"{numerals.cardinal(above)} out of {numerals.cardinal(below)}"
    if left > right or (right > 20 and right not in (32, 64)):
        return (
            f"{numerals.cardinal(above)} {numerals.cardinal(below)}"
            if left > right
            else f"{numerals.cardinal(above)} over {numerals.cardinal(below)}"
        )
    return spoken_quantity(match[0])


def _hundreds(written: str) -> str:
    return numerals.short(written) if len(written) == 3 else numerals.cardinal(written)


def _school_year(match: re.Match[str]) -> str:
    return f"{numerals.year(match['year'])} {numerals.pair(match['next'])}"


def _years(match: re.Match[str]) -> str:
    last = match["last"]
    return f"{numerals.year(match['first'])} to {numerals.year(last) if len(last) == 4 else numerals.pair(last)}"


def _range(match: re.Match[str]) -> str:
    return f"{spoken_quantity(match['left'])} to {spoken_quantity(match['right'])}"


def _spaced(match: re.Match[str]) -> str:
    """With blanks around the hyphen, a rising pair is a range, else a difference."""
    left, right = (float(match[side].replace(",", "")) for side in ("left", "right"))
    is_question = re.search(
        r"(?:[Ww]hat(?:'s| is)|[Cc]alculate|[Cc]ompute|[-+=×*÷/] ?)[ ]?$",
        match.string[max(0, match.start() - 12) : match.start()],
    )
    after = re.match(r"[ ]*[-+=×*÷<>≤≥≠]", match.string[match.end() : match.end() + 4])
    word = "minus" if left > right or is_question or after else "to"
    return f"{numerals.amount(match['left'])} {word} {numerals.amount(match['right'])}"


RULES: tuple[Rule, ...] = (
    (re.compile(rf"(?<![\w.,/$£€-])(?P<year>{_YEARS})[/](?P<next>[0-9]{{2}})(?![\w/%-]|[.,][0-9])"), _school_year),
    (re.compile(rf"(?<![\w.,/$£€-])(?P<first>{_YEARS})-(?P<last>{_YEARS}|[0-9]{{2}})(?![\w/%-]|[.,][0-9])"), _years),
    (
        re.compile(
            rf"{ALONE}(?P<mixed>[0-9]{{1,4}}[ -][0-9]{{1,2}}[/⁄][0-9]{{1,3}}|(?:[0-9]{{1,4}} "
            rf"?)?[{FRACTION_SIGNS}])(?![\w/%]|[.,][0-9])"
        ),
        lambda match: spoken_quantity(match["mixed"]),
    ),
    (re.compile(rf"[{FRACTION_SIGNS}]"), lambda match: f" {spoken_quantity(match[0])} "),
    (re.compile(r"(?<![\w.,/$£€-])(?P<above>[0-9]{1,4})[/⁄](?P<below>[0-9]{1,4})(?![\w/%]|[.,-][0-9])"), _slash),
    (re.compile(rf"{ALONE}(?P<left>{NUMBER}) - (?P<right>{NUMBER})(?![\w/%]|[.,][0-9])"), _spaced),
    (re.compile(rf"{ALONE}(?P<left>{QUANTITY})-(?P<right>{QUANTITY})(?![\w/%-]|[.,][0-9])"), _range),
)
