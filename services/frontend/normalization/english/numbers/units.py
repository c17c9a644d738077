"""Figures with a unit: `2.4m`, `15-18°C`, `a 20 A fuse`, `5 ft 11 in`, `9.8 m/s²`."""

import re

from services.frontend.normalization.english.numerals import ALONE, NUMBER, QUANTITY, is_singular, spoken_quantity
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
"""Ambiguous symbols: only in the contexts below, or before `per`.
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


def _names(match: re.Match[str]) -> tuple[str, str]:
    if match["length"]:
        one, many = NAMES.get(match["length"], ("inch", "inches"))
        power = POWERS[match["power"]]
        return power + one, power + many
    return NAMES.get(match["over"] or match["unit"] or "g", ("inch", "inches"))


def _per(match: re.Match[str]) -> str:
    if not match["per"]:
        return ""
    power = match["perpower"] or ""
    name = PER[match["per"]]
    if power and match["per"] in LENGTHS:
        return f" per {'square' if power in ('²', '^2') else 'cubic'} {name}"
    return f" per {name}{' squared' if power in ('²', '^2') else ' cubed' if power else ''}"


def _attributive(match: re.Match[str]) -> bool:
    """Whether the measure precedes the noun that it describes: a 5 km run, a 15-oz can."""
    if match["joint"] == "-":
        return re.match(r"[ -][a-z]{3}", match.string[match.end() : match.end() + 4]) is not None
    if not _NOUN_FOLLOWS.match(match.string, match.end()):
        return False
    return _ONE_OF_THEM.search(match.string, max(0, match.start() - 20), match.start()) is not None


def _measure(match: re.Match[str]) -> str:
    one, many = _names(match)
    low = f"{spoken_quantity(match['low'])} to " if match["low"] else ""
    singular = _attributive(match) if match["low"] else is_singular(match["high"]) or _attributive(match)
    return f"{low}{spoken_quantity(match['high'])} {one if singular else many}{_per(match)}{_full_stop_after(match)}"


def _full_stop_after(match: re.Match[str]) -> str:
    """The full stop of an abbreviation is removed, that of a sentence stays."""
    return (
        ""
        if match["dot"] is None or re.match(r"[ ][a-z0-9(]|[,;:]", match.string[match.end() : match.end() + 2])
        else "."
    )


def _of_inches(match: re.Match[str]) -> str:
    high = match["high"]
    attributive = match["joint"] == "-" or (match["joint"] == " " and _attributive(match))
    low = (
        f"{spoken_quantity(match['low'])} {'by' if match['by'] and match['by'].strip() in 'x×' else 'to'} "
        if match["low"]
        else ""
    )
    unit = "inch" if is_singular(high) or attributive else "inches"
    return f"{low}{spoken_quantity(high)} {unit}{_full_stop_after(match)}"


def _feet_and_inches(match: re.Match[str]) -> str:
    return (
        f"{spoken_quantity(match['feet'])} {'foot' if match['feet'] == '1' or not match['tall'] else 'feet'} "
        f"{spoken_quantity(match['inches'])}"
    )


def _feet(match: re.Match[str]) -> str:
    tall = re.match(
        r"[ ](?:tall|long|wide|deep|high|away|of|apart|and|or)\b|[,.;:!?]|$",
        match.string[match.end() : match.end() + 8],
    )
    return f"{spoken_quantity(match['feet'])} {'feet' if tall and match['feet'] != '1' else 'foot'}"


def _hours(match: re.Match[str]) -> str:
    parts = [(match["hours"], "hour"), (match["minutes"], "minute"), (match["seconds"], "second")]
    return " ".join(f"{spoken_quantity(count)} {name}{'' if count == '1' else 's'}" for count, name in parts if count)


def _minutes(match: re.Match[str]) -> str:
    return f"{match['before'] or ''}{spoken_quantity(match['count'])} minute{'' if match['count'] == '1' else 's'}"


def _ampere(match: re.Match[str]) -> str:
    many = not _attributive(match) and match["high"] != "1"
    return f"{spoken_quantity(match['high'])} {'amps' if many else 'amp'}"


def _degrees(match: re.Match[str]) -> str:
    if _SEAT.search(match.string, max(0, match.start() - 20), match.start()):
        return match[0]
    low = f"{spoken_quantity(match['low'])} to " if match["low"] else ""
    return f"{low}{spoken_quantity(match['high'])} degrees {'Celsius' if match['scale'] == 'C' else 'Fahrenheit'}"


def _inch_signs(text: str) -> str:
    """`27"` where no quotation is open that the sign could close."""
    spoken, start, quotes = [], 0, 0
    for match in _INCH_SIGN.finditer(text):
        quotes += text.count('"', start, match.start())
        spoken.append(text[start : match.start()])
        start = match.end()
        if match["sign"] == '"' and quotes % 2:
            quotes += 1
            spoken.append(match[0])
            continue
        attributive = match.string[max(0, match.start() - 2) : match.start()].lower() in (
            "a ",
            "n ",
        ) and _NOUN_FOLLOWS.match(text, match.end())
        by = f"{spoken_quantity(match['low'])} by " if match["low"] else ""
        spoken.append(
            f"{by}{spoken_quantity(match['high'])} {'inch' if attributive or is_singular(match['high']) else 'inches'}"
        )
    return "".join([*spoken, text[start:]])


def with_inches(text: str) -> str:
    """`text` with inches in words that are written with a double prime or quotation mark."""
    return _inch_signs(text) if any(sign in text for sign in '"”″') else text


def _without_figure(match: re.Match[str]) -> str:
    """Singular after `per`, plural after `in`."""
    one, many = NAMES[match["unit"]]
    power = POWERS[match["power"]] if match["power"] else ""
    return f"{match['lead']}{power}{one if match['lead'].startswith('per') else many}{_per(match)}"


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
