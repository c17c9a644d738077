"""Times of day, their ranges, and ratios that look like them."""

import re

from services.frontend.normalization.english import numerals
from services.frontend.segmentation.hours import HOUR_OF_A_THING, POINT_IN_TIME, thing_follows, weekday_opens
from services.frontend.segmentation.sentence_ends import OPENERS
from services.frontend.text.rules import Rule

_HALF = r"(?P<half>[ ]?(?:[ap]\.m\.|[AP]\.M\.|[ap]m\b|[AP]M\b))"
_CLOCK = r"(?:[01]?[0-9]|2[0-4])(?::[0-5][0-9](?::[0-5][0-9])?)?"
_APART = r"(?<![\w.,/$£€:-])"
_BOOKS = (
    "John|Genesis|Exodus|Matthew|Mark|Luke|Acts|Romans|Corinthians|Psalms?|Proverbs|Isaiah|Revelation|James|Hebrews|"
    "Ephesians|Leviticus"
)
_RATIO = (
    r"(?=[ -](?:ratio|split|mix|mixture|odds|aspect|scale|proportion|favorite|win|loss|lead|victory|gear|slope|vote|"
    r"draw|tie|score|dilution|solution|blend|concentration|with water|in water)\b)"
)

_OF_TIME = (
    r"(?:at|for|until|till|by|from|to|starts?|started|begins?|began|ends?|ended|lasts?|lasted|takes?|runs?|after|"
    r"before|around|about|near|since|past|between|over|of)"
)
_NO_TIME = (
    r"(?:1:10|[0-9]{1,4}:(?:[0-9]|[6-9][0-9]|[0-9]{3,4})|(?:2[5-9]|[3-9][0-9]):[0-9]{2}|"
    r"1:(?!15|30|45)[1-9][0-9](?= (?:with|in(?! the )|ratio)\b))(?![0-9:])"
)
"""A pair that is a ratio wherever things are mixed: also a batter is mixed for 1:30."""


def _clock(written: str, *, alone: bool = False) -> str:
    """alone: no AM or PM follows."""
    hours, *rest = written.split(":")
    hour = numerals.cardinal(hours.lstrip("0") or "0")
    if not rest:
        return hour
    if len(rest) == 2:
        return f"{_clock(f'{hours}:{rest[0]}')} and {numerals.cardinal(rest[1].lstrip('0') or '0')} seconds"
    if rest[0] == "00":
        return hour if not alone else f"{hour} o'clock" if 1 <= int(hours) <= 12 else f"{hour} hundred"
    minutes = f"o {numerals.cardinal(rest[0][1])}" if rest[0][0] == "0" else numerals.cardinal(rest[0])
    return f"{hour} {minutes}"


def _half(written: str | None) -> str:
    return "" if written is None else f" {written.strip().replace('.', '').upper()}"


_WORD = re.compile(r"[ ]([A-Za-z]+)")


def _blanks(text: str) -> int:
    return len(text) - len(text.lstrip())


def _stop(match: re.Match[str]) -> str:
    """`p.m.` has consumed the full stop of the sentence."""
    half = match["half"] or ""
    after = match.string[match.end() : match.end() + 3]
    if not half.endswith("."):
        return ""
    if POINT_IN_TIME.match(match.string, match.end() + 1):
        sentence = match.string[max(match.string.rfind(mark, 0, match.start()) for mark in ".!?") + 1 :]
        behind = len(sentence) - len(match.string) + match.end()
        return "." if weekday_opens(sentence.lstrip(), behind - _blanks(sentence), len(sentence)) else ""
    if HOUR_OF_A_THING.search(match.string, max(0, match.start() - 12), match.end()):
        following = _WORD.match(match.string, match.end())
        named = following is not None and following[1].lower() not in OPENERS
        if named and thing_follows(match.string, match.end(), len(match.string)):
            return ""
    return "." if not after.strip() or (after[0] == " " and after[1:2].isupper()) else ""


def _time(match: re.Match[str]) -> str:
    first = f"{_clock(match['first'])}{_half(match['half1'])} to " if match["first"] else ""
    return f"{first}{_clock(match['clock'])}{_half(match['half'])}{_stop(match)}"


_LASTING = re.compile(
    r"\b(?:times?|records?|took|takes?|taking|lasts?|lasted|lasting|finish(?:ed|es)?|durations?|length|elapsed|ran|run"
    r"(?:s|ning)?|marathon|"
    r"timer|video|recording|within|under|over|long)\b[^.!?\n]{0,20}$",
    re.IGNORECASE,
)
_LASTED = re.compile(r"[ ](?:long|remaining|left|elapsed|into the|marathon|finish|video|recording)\b")


def _spans(match: re.Match[str]) -> bool:
    """Whether hours, minutes and seconds are a duration, not a time of day."""
    before = match.string[max(0, match.start() - 32) : match.start()]
    return not before.endswith(" at ") and (
        _LASTING.search(before) is not None or _LASTED.match(match.string, match.end()) is not None
    )


def _span(written: str) -> str:
    """`"2:03:11"` as two hours three minutes and eleven seconds; zero parts are left out."""
    parts = [
        f"{numerals.cardinal(number.lstrip('0'))} {name}{'' if number.lstrip('0') == '1' else 's'}"
        for number, name in zip(written.split(":"), ("hour", "minute", "second"), strict=True)
        if number.strip("0")
    ]
    return " ".join(parts[:-1] + ["and"] * (len(parts) > 1) + parts[-1:])


def _alone(match: re.Match[str]) -> str:
    first = f"{_clock(match['first'])} to " if match["first"] else ""
    if not first and match["clock"].count(":") == 2 and match["clock"].strip("0:") and _spans(match):
        return _span(match["clock"])
    return f"{first}{_clock(match['clock'], alone=not match['first'])}"


def _to(match: re.Match[str]) -> str:
    return f"{numerals.cardinal(match['left'])} to {numerals.cardinal(match['right'])}"


RULES: tuple[Rule, ...] = (
    (
        re.compile(
            rf"\b(?P<book>(?:{_BOOKS}) "
            rf")(?P<chapter>[0-9]{{1,3}}):(?P<verse>[0-9]{{1,3}})(?:-(?P<last>[0-9]{{1,3}}))?(?![0-9:])"
        ),
        lambda match: (
            f"{match['book']}{numerals.cardinal(match['chapter'])} {numerals.cardinal(match['verse'])}"
            f"{' to ' + numerals.cardinal(match['last']) if match['last'] else ''}"
        ),
    ),
    (re.compile(rf"{_APART}(?P<left>[0-9]{{1,4}}):(?P<right>[0-9]{{1,4}})(?![0-9:]){_RATIO}"), _to),
    (re.compile(rf"{_APART}(?P<left>[0-9]{{1,4}}):(?P<right>[0-9])(?![0-9:])"), _to),
    (
        re.compile(rf"{_APART}(?P<left>[0-9]{{3,5}}):(?P<right>[0-9]{{2,5}})(?![0-9:])"),
        lambda match: f"{numerals.short(match['left'])} colon {numerals.short(match['right'])}",
    ),
    (
        re.compile(
            r"(?P<lead>\b(?:(?:[Ss]cale|[Rr]atio|[Oo]dds)(?: is| was| of| are){0,2}|"
            r"[Dd]ilut(?:e|ed|ing)(?: (?!at\b)[a-z]{1,10}){0,2}|"
            rf"(?:[Mm]ix(?:ed|ing)?|[Bb]lend(?:ed)?)(?: (?!{_OF_TIME}\b)[a-z]{{1,10}}){{0,2}}(?= {_NO_TIME})) "
            r")(?P<left>[0-9]{1,4}):(?P<right>[0-9]{1,4})(?![0-9:])"
        ),
        lambda match: match["lead"] + _to(match),
    ),
    (
        re.compile(
            rf"{_APART}(?:(?P<first>{_CLOCK})(?P<half1>[ ]?(?:[ap]\.m\.|[AP]\.M\.|[ap]m\b|[AP]M\b))?[ ]?-[ ]?)"
            f"?(?P<clock>{_CLOCK}){_HALF}(?![A-Za-z0-9])"
        ),
        _time,
    ),
    (
        re.compile(
            rf"{_APART}(?:(?P<first>{_CLOCK})-)?(?P<clock>(?:[01]?[0-9]|2[0-4]):[0-5][0-9](?::[0-5][0-9])?)"
            rf"(?![0-9:]|[.,][0-9])"
        ),
        _alone,
    ),
    (re.compile(r"(?<=[ 0-9])[ap]\.m\.(?=[ ][a-z0-9])"), lambda match: match[0].replace(".", "").upper()),
    (
        re.compile(
            r"\b(?P<lead>[Ww]ork(?:s|ed|ing)?|[Oo]pen|from) "
            r"(?P<left>[1-9]|1[0-2])-(?P<right>[1-9]|1[0-2])(?![0-9/:.%-])"
        ),
        lambda match: f"{match['lead']} {_to(match)}",
    ),
)
