"""Figures with a unit: `2.4m`, `15-18°C`, `a 20 A fuse`, `5 ft 11 in`, `9.8 m/s²`."""

import re

from services.frontend.normalization.english.quantities import ALONE, NUMBER, QUANTITY, is_singular, said
from services.frontend.normalization.english.unit_names import LENGTHS, NAMES, POWERS
from services.frontend.text.rules import Rule, any_of

_UNCLEAR = {
    "B",
    "T",
    "K",
    "H",
    "F",
    "N",
    "us",
    "ac",
    "pc",
    "ct",
    "t",
    "A",
    "in",
    "st",
    "mil",
    "kt",
    "pts",
    "MP",
    "AU",
    "HP",
    "ps",
    "rad",
    "mos",
    "g",
}
"""Symbols that stand for other things as well: only where the text says so (below), or in front of
`per`.
"""
_CLEAR = {symbol: names for symbol, names in NAMES.items() if symbol not in _UNCLEAR}
PER = {symbol: NAMES[symbol][0] for symbol in NAMES if symbol.isalpha()} | {
    "in": "inch", "person": "person", "day": "day", "week": "week", "month": "month", "year": "year", "hour": "hour",
    "minute": "minute", "second": "second", "capita": "capita", "serving": "serving", "d": "day",
}  # fmt: skip
_POWER = rf"(?:{any_of(POWERS)})"
_UNIT = (
    rf"(?:(?P<length>{any_of(LENGTHS)})(?P<power>{_POWER})(?![0-9])|(?P<over>{any_of([*NAMES, 'in'])})(?=/)|"
    rf"(?P<unit>{any_of(_CLEAR)})|(?P<grams>g)(?=[^A-Za-z0-9]|$))"
)
_RATE = rf"(?:/(?P<per>{any_of(PER)})(?P<perpower>[²³]|\^[23])?)?"
_NO_NOUN = (
    "of|in|is|are|was|were|and|or|to|for|at|on|from|with|than|per|by|as|but|that|which|when|if|so|about|into|over|"
    "under|until|within|will|long|wide|tall|high|deep|thick|away|apart|left|more|less|later|ago|each|every|today|this|"
    "the|it|they|we|you|he|she|can|has|have|had|should|would|between|before|after|back|off|up|down|above|below|north|"
    "south|east|west|then|too|only|now|because|while|during|since|through|without|around|inside|outside|per"
)
_NOUN_FOLLOWS = re.compile(rf"[ -](?!(?:{_NO_NOUN})\b)(?:[a-z]{{3}}|[A-Z]{{2}})")
_ONE_OF_THEM = re.compile(
    r"\b(?:an?[ ](?:[a-z]{3,10}[ ])?|(?:the|this|that|his|her|my|your|our|their|every|each|another)[ ])$", re.IGNORECASE
)
_SEAT = re.compile(
    r"\b(?:seat|row|gate|room|apt|apartment|unit|flat|suite|door|bay|platform|terminal|grade|class|locker|exit)\b[a-z "
    r"]{0,8}$",
    re.IGNORECASE,
)
_BEHIND = r"(?![A-Za-z0-9°²³])"


def _names(found: re.Match[str]) -> tuple[str, str]:
    if found["length"]:
        one, many = NAMES.get(found["length"], ("inch", "inches"))
        power = POWERS[found["power"]]
        return power + one, power + many
    return NAMES.get(found["over"] or found["unit"] or "g", ("inch", "inches"))


def _per(found: re.Match[str]) -> str:
    if not found["per"]:
        return ""
    power = found["perpower"] or ""
    name = PER[found["per"]]
    if power and found["per"] in LENGTHS:
        return f" per {'square' if power in ('²', '^2') else 'cubic'} {name}"
    return f" per {name}{' squared' if power in ('²', '^2') else ' cubed' if power else ''}"


def _attributive(found: re.Match[str]) -> bool:
    """Whether the measure precedes the noun that it describes: a 5 km run, a 15-oz can."""
    if found["joint"] == "-":
        return re.match(r"[ -][a-z]{3}", found.string[found.end() : found.end() + 4]) is not None
    if not _NOUN_FOLLOWS.match(found.string, found.end()):
        return False
    return _ONE_OF_THEM.search(found.string, max(0, found.start() - 20), found.start()) is not None


def _measure(found: re.Match[str]) -> str:
    one, many = _names(found)
    low = f"{said(found['low'])} to " if found["low"] else ""
    singular = _attributive(found) if found["low"] else is_singular(found["high"]) or _attributive(found)
    return f"{low}{said(found['high'])} {one if singular else many}{_per(found)}{_dot(found)}"


def _dot(found: re.Match[str]) -> str:
    """The full stop of an abbreviation is removed, that of a sentence stays."""
    return (
        ""
        if found["dot"] is None or re.match(r"[ ][a-z0-9(]|[,;:]", found.string[found.end() : found.end() + 2])
        else "."
    )


def _of_inches(found: re.Match[str]) -> str:
    high = found["high"]
    attributive = found["joint"] == "-" or (found["joint"] == " " and _attributive(found))
    low = (
        f"{said(found['low'])} {'by' if found['by'] and found['by'].strip() in 'x×' else 'to'} " if found["low"] else ""
    )
    return f"{low}{said(high)} {'inch' if is_singular(high) or attributive else 'inches'}{_dot(found)}"


def _feet_and_inches(found: re.Match[str]) -> str:
    return (
        f"{said(found['feet'])} {'foot' if found['feet'] == '1' or not found['tall'] else 'feet'} "
        f"{said(found['inches'])}"
    )


def _feet(found: re.Match[str]) -> str:
    tall = re.match(
        r"[ ](?:tall|long|wide|deep|high|away|of|apart|and|or)\b|[,.;:!?]|$",
        found.string[found.end() : found.end() + 8],
    )
    return f"{said(found['feet'])} {'feet' if tall and found['feet'] != '1' else 'foot'}"


def _hours(found: re.Match[str]) -> str:
    parts = [(found["hours"], "hour"), (found["minutes"], "minute"), (found["seconds"], "second")]
    return " ".join(f"{said(count)} {name}{'' if count == '1' else 's'}" for count, name in parts if count)


def _minutes(found: re.Match[str]) -> str:
    return f"{found['before'] or ''}{said(found['count'])} minute{'' if found['count'] == '1' else 's'}"


def _ampere(found: re.Match[str]) -> str:
    many = not _attributive(found) and found["high"] != "1"
    return f"{said(found['high'])} {'amps' if many else 'amp'}"


def _degrees(found: re.Match[str]) -> str:
    if _SEAT.search(found.string, max(0, found.start() - 20), found.start()):
        return found[0]
    low = f"{said(found['low'])} to " if found["low"] else ""
    return f"{low}{said(found['high'])} degrees {'Celsius' if found['scale'] == 'C' else 'Fahrenheit'}"


def _inch_signs(text: str) -> str:
    """`27"` where no quotation is open that the sign could close."""
    spoken, start, quotes = [], 0, 0
    for found in _INCH_SIGN.finditer(text):
        quotes += text.count('"', start, found.start())
        spoken.append(text[start : found.start()])
        start = found.end()
        if found["sign"] == '"' and quotes % 2:
            quotes += 1
            spoken.append(found[0])
            continue
        attributive = found.string[max(0, found.start() - 2) : found.start()].lower() in (
            "a ",
            "n ",
        ) and _NOUN_FOLLOWS.match(text, found.end())
        by = f"{said(found['low'])} by " if found["low"] else ""
        spoken.append(f"{by}{said(found['high'])} {'inch' if attributive or is_singular(found['high']) else 'inches'}")
    return "".join([*spoken, text[start:]])


def with_inches(text: str) -> str:
    """`text` with inches in words that are written with a double prime or quotation mark."""
    return _inch_signs(text) if any(sign in text for sign in '"”″') else text


def _without_figure(found: re.Match[str]) -> str:
    """Singular after `per`, plural after `in`."""
    one, many = NAMES[found["unit"]]
    power = POWERS[found["power"]] if found["power"] else ""
    return f"{found['lead']}{power}{one if found['lead'].startswith('per') else many}{_per(found)}"


_INCH_SIGN = re.compile(
    rf"{ALONE}(?:(?P<low>{QUANTITY})[\"”″]? ?[x×] ?)?(?P<high>{QUANTITY})(?P<sign>[\"”″])(?![A-Za-z0-9])"
)
WITHOUT_FIGURE: tuple[Rule, ...] = (
    (
        re.compile(
            rf"\b(?P<lead>per |in )(?:(?P<unit>mm|cm|km|m(?=[²³])|ft|kg|mg|kWh|kW|MB|GB|TB|ml|mL|oz|lbs?|gal|mph|"
            rf"(?<=per )(?:hr|sec)|m(?=/s))(?P<power>{_POWER})?)(?:/(?P<per>h|hr|s|kg|L)(?P<perpower>[²]?))?"
            rf"(?![A-Za-z0-9/])"
        ),
        _without_figure,
    ),
)
"""Units after a word: the price per kg, the distance in km."""
_RANGE = rf"(?:(?P<low>{QUANTITY})(?:[ ]?(?:°[CF]?|%|[a-zA-Z]{{1,2}}))?[ ]?-[ ]?)?"
RULES: tuple[Rule, ...] = (
    (
        re.compile(
            r"(?<![0-9A-Za-z.,])(?P<feet>[1-9])['’′] ?(?P<inches>1[01]|[0-9])(?:[\"”″]|''|(?![0-9A-Za-z]))(?P<tall>)"
        ),
        _feet_and_inches,
    ),
    (
        re.compile(
            rf"{ALONE}(?P<feet>{NUMBER})(?:′(?![0-9])|['’](?=[ ](?:tall|long|wide|deep|high|apart|away|by|x)\b))"
        ),
        _feet,
    ),
    (
        re.compile(
            r"(?<![\w.,])(?P<hours>[0-9]{1,3})[ ]?(?:h|hr|hrs)\.?[ ]?(?P<minutes>[0-9]{1,2})[ ]?(?:m|min|mins)\b"
            r"(?:[ ]?(?P<seconds>[0-9]{1,2})[ ]?(?:s|sec)\b)?"
        ),
        _hours,
    ),
    (re.compile(r"(?<![\w.,])(?P<hours>)(?P<minutes>[0-9]{1,3})m[ ]?(?P<seconds>[0-9]{1,2})s\b"), _hours),
    (re.compile(r"(?<![\w.,])(?P<before>)(?P<count>[0-9]{1,3})[ ]?m(?=[ ](?:ago|later|left|remaining)\b)"), _minutes),
    (re.compile(r"\b(?P<before>(?:[Ww]ait|[Rr]est|[Ii]n|[Ff]or) )(?P<count>[0-9]{1,2})m(?=[.,!?]|$)"), _minutes),
    (
        re.compile(
            rf"(?P<foot>{ALONE}[0-9]{{1,4}}[ ]?(?:ft|feet|foot)\.?[ ])(?P<inches>[0-9]{{1,2}}(?:\.[0-9])?)[ ]?"
            rf"(?:inches|inch|in\b\.?(?![A-Za-z]))"
        ),
        r"\g<foot>\g<inches> inches",
    ),
    (
        re.compile(
            rf"{ALONE}(?:(?P<low>{QUANTITY})(?P<by>-|[ ]?[x×][ ]?))?(?P<high>{QUANTITY})(?P<joint>[ "
            r"-]?)in(?:(?P<dot>\.)(?=[ ][a-z]|,|$)|"
            "(?=[ ](?:tall|long|wide|high|deep|thick|across|by|x|of (?:rain|snow)|diameter|screen|monitor|display|pipe|"
            r"pan|tv|nails?|waist)\b|[²³]))"
        ),
        _of_inches,
    ),
    (
        re.compile(
            f"{ALONE}(?P<low>)(?P<high>{NUMBER})(?P<joint>[ -]?)A(?=[ ](?:fuse|circuit|breaker|outlet|charger|current|"
            "socket|plug|battery|load|max|of|at"
            r"|supply|adapter|cable|power|relay)\b|[ ]?[,.;](?:[ ]|$)|$)"
        ),
        _ampere,
    ),
    (
        re.compile(rf"{ALONE}(?:(?P<low>[0-9]{{1,3}})-)?(?P<high>[0-9]{{1,3}})(?P<scale>[CF])(?![A-Za-z0-9#+°'’-])"),
        _degrees,
    ),
    (
        re.compile(
            rf"{ALONE}{_RANGE}(?P<high>{QUANTITY})(?P<joint>[ -]?){_UNIT}{_RATE}{_BEHIND}"
            rf"(?P<dot>(?<=[a-zA-Z])\.(?![0-9A-Za-z.]))?"
        ),
        _measure,
    ),
)
