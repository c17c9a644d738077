"""Measures in a row (`30 x 20 x 15 cm`, `8' × 10'`), and units whose symbol has two readings by the
words around it: basis points or bits per second (`25 bps`), knots or karats (`12 kt`, `14K gold`).
"""

import re

from services.frontend.normalization.english import numerals
from services.frontend.normalization.english.numbers.units import (
    LENGTHS,
    NOUN_FOLLOWS,
    ONE_OF_THEM,
    amounts_of,
    full_stop_after,
    is_attributive,
)
from services.frontend.normalization.english.numerals import ALONE, NUMBER
from services.frontend.text.rules import Rule, any_of

_LENGTH = rf"(?:{any_of(set(LENGTHS) - {'in'})}|meters?|feet|foot|inch(?:es)?)(?![A-Za-z0-9])"
_BY = r"(?:[ ]?×[ ]?|[ ]x[ ]|x)"
"""With a blank behind it alone, an x counts (`3x 10 m`)."""
_ROW = re.compile(rf"{ALONE}(?:{NUMBER}(?:[ ]?{_LENGTH})?{_BY}){{1,3}}(?={NUMBER}[ ]?{_LENGTH})")
_ELEMENT = re.compile(rf"(?P<number>{NUMBER})(?P<unit>[ ]?{_LENGTH})?{_BY}")
_FOOT_ROW = re.compile(
    r"(?<![\w.,/^$£€¥₹'’‘\"-])(?:[0-9]{1,3}(?:\.[0-9])?['’′](?:[ ]?[0-9]{1,2}[\"”″])?[ ]?[x×][ ]?){1,2}"
    r"[0-9]{1,3}(?:\.[0-9])?['’′](?:[ ]?[0-9]{1,2}[\"”″])?(?![0-9A-Za-z])"
)
_FOOT = re.compile(r"(?P<feet>[0-9.]+)['’′](?:[ ]?(?P<inches>[0-9]+)[\"”″])?")
_MOST_BASIS_POINTS = 500
"""Lines of so many bits a second are no longer in use, but for slow modems."""
_LINES = (
    r"(?:modems?|baud|speeds?|bit ?rates?|bandwidth|links?|serial|connections?|networks?|internet|downloads?|"
    r"dial-?up|uploads?|data|throughput|transfers?|transmi(?:t|ts|tted|ssion))\b"
)
_LINE = re.compile(rf"\b{_LINES}", re.IGNORECASE)
_LINE_FOLLOWS = re.compile(rf"[ ](?:[a-z]{{1,12}} )?{_LINES}")
_AT_SEA = re.compile(
    r"\b(?:winds?|gust(?:s|ing)?|knots|speeds?|airspeed|groundspeed|sail(?:s|ed|ing)?|boats?|vessels?|currents|"
    r"(?:the|an?|this|that|our|cruise|cargo|container) ships?|warships?|"
    r"cruis(?:e|es|ed|ing)|storm|hurricane|breeze|headwind|tailwind|crosswind)\b|\b[NSEW]{1,3}[ ](?:at )?$",
    re.IGNORECASE,
)
_JEWEL = (
    r"\b(?:rings?|chains?|gold|golden|bracelets?|necklaces?|earrings?|bands?|jewel[a-z]*|pendants?|lockets?|diamonds?|"
    r"brooch(?:es)?|anklets?|cufflinks?|[ck]arats?)\b"
)
_JEWEL_IN_FRONT = re.compile(rf"{_JEWEL}[^.!?\n]*$", re.IGNORECASE)
_JEWEL_BEHIND = re.compile(rf"[^.,;!?\n]{{0,30}}{_JEWEL}", re.IGNORECASE)
_WIND_FOLLOWS = re.compile(r"[ ](?:[a-z]{1,12} )?(?:winds?|gusts?|headwinds?|tailwinds?|crosswinds?|breeze)\b")


def _row(match: re.Match[str]) -> str:
    return _ELEMENT.sub(
        lambda one: f"{one[0][: one.end('unit') - one.start()] if one['unit'] else numerals.amount(one['number'])} by ",
        match[0],
    )


def _foot_row(match: re.Match[str]) -> str:
    one_of_them = ONE_OF_THEM.search(match.string, max(0, match.start() - 20), match.start())
    noun = one_of_them is not None and NOUN_FOLLOWS.match(match.string, match.end()) is not None
    words = []
    for one in _FOOT.finditer(match[0]):
        inches = f" {numerals.cardinal(one['inches'])}" if one["inches"] else ""
        words.append(f"{numerals.amount(one['feet'])} {'foot' if noun or one['feet'] == '1' else 'feet'}{inches}")
    return " by ".join(words)


def _basis_points(match: re.Match[str]) -> str:
    text = match.string
    if (
        float(match["high"].replace(",", "")) > _MOST_BASIS_POINTS
        or _LINE.search(text, max(0, match.start() - 60), match.start())
        or _LINE_FOLLOWS.match(text, match.end())
    ):
        return match[0]
    single = is_attributive(match) or match["high"] == "1"
    return f"{amounts_of(match)} basis point{'' if single else 's'}"


def _knots(match: re.Match[str]) -> str:
    text = match.string
    before = max(0, match.start() - 60), match.start()
    at_sea = _AT_SEA.search(text, *before) or _WIND_FOLLOWS.match(text, match.end())
    if not at_sea or _JEWEL_IN_FRONT.search(text, *before) or _JEWEL_BEHIND.match(text, match.end()):
        return match[0]
    name = "knot" if is_attributive(match) or match["high"] == "1" else "knots"
    return f"{amounts_of(match)} {name}{full_stop_after(match)}"


RULES: tuple[Rule, ...] = (
    (_ROW, _row),
    (_FOOT_ROW, _foot_row),
    (
        re.compile(
            rf"{ALONE}(?:(?P<low>{NUMBER})[ ]?-[ ]?)?(?P<high>{NUMBER})(?P<joint>[ -]?)"
            r"(?:bps|bp(?=[ ](?:hike|cut|rise|increase|drop|move|reduction)s?\b))(?![A-Za-z0-9/])"
        ),
        _basis_points,
    ),
    (
        re.compile(
            r"(?<![\w.,])(?P<number>[1-9][0-9]?)[ -]?(?:[Kk]t?|ct)"
            r"(?=[ -](?:(?:solid|white|yellow|rose|red)[ -])?gold\b)"
        ),
        lambda match: f"{numerals.cardinal(match['number'])} karat",
    ),
    (
        re.compile(
            rf"{ALONE}(?:(?P<low>{NUMBER})[ ]?-[ ]?)?(?P<high>{NUMBER})(?P<joint>[ -]?)kt(?![A-Za-z0-9])"
            r"(?P<dot>\.(?![0-9A-Za-z.]))?"
        ),
        _knots,
    ),
)
"""Before the other units."""
