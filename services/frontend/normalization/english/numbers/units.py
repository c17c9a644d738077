"""Units of measurement with their singular and plural, and figures with a unit: `2.4m`, `15-18°C`,
`a 20 A fuse`, `5 ft 11 in`, `9.8 m/s²`.
"""

import re

from services.frontend.normalization.english.numerals import ALONE, NUMBER, QUANTITY, is_singular, spoken_quantity
from services.frontend.text.rules import Rule, any_of

_REGULAR = {
    "mm": "millimeter", "cm": "centimeter", "dm": "decimeter", "m": "meter", "km": "kilometer", "µm": "micrometer",
    "μm": "micrometer", "um": "micrometer", "nm": "nanometer", "yd": "yard", "yds": "yard", "mi": "mile", "mil": "mil",
    "mg": "milligram", "µg": "microgram", "μg": "microgram", "mcg": "microgram", "g": "gram", "kg": "kilogram",
    "kgs": "kilogram", "kgf": "kilogram force", "lb": "pound", "lbs": "pound", "oz": "ounce", "ml": "milliliter",
    "mL": "milliliter", "cl": "centiliter", "cL": "centiliter", "dl": "deciliter", "dL": "deciliter", "l": "liter",
    "L": "liter", "µL": "microliter", "μL": "microliter", "fl oz": "fluid ounce", "fl. oz": "fluid ounce",
    "gal": "gallon", "qt": "quart", "pt": "pint", "tsp": "teaspoon", "tsps": "teaspoon", "tbsp": "tablespoon",
    "tbsps": "tablespoon", "Tbsp": "tablespoon", "TBSP": "tablespoon", "tbs": "tablespoon", "Tsp": "teaspoon",
    "ms": "millisecond", "msec": "millisecond", "µs": "microsecond", "μs": "microsecond", "us": "microsecond",
    "ns": "nanosecond", "ps": "picosecond", "s": "second", "sec": "second", "secs": "second", "min": "minute",
    "mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour", "wk": "week", "wks": "week", "mo": "month",
    "mos": "month", "yr": "year", "yrs": "year", "kn": "knot", "kt": "knot", "kts": "knot", "B": "byte",
    "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte", "PB": "petabyte",
    "EB": "exabyte", "KiB": "kibibyte", "MiB": "mebibyte", "GiB": "gibibyte", "TiB": "tebibyte", "Kb": "kilobit",
    "kb": "kilobit", "Mb": "megabit", "Gb": "gigabit", "V": "volt", "mV": "millivolt", "kV": "kilovolt",
    "MV": "megavolt", "A": "amp", "mA": "milliamp", "µA": "microamp", "μA": "microamp", "kA": "kiloamp", "W": "watt",
    "mW": "milliwatt", "kW": "kilowatt", "MW": "megawatt", "GW": "gigawatt", "TW": "terawatt", "Wh": "watt hour",
    "kWh": "kilowatt hour", "MWh": "megawatt hour", "GWh": "gigawatt hour", "TWh": "terawatt hour",
    "mAh": "milliamp hour", "Ah": "amp hour", "kVA": "kilovolt amp", "VA": "volt amp", "Ω": "ohm", "kΩ": "kilohm",
    "MΩ": "megohm", "mΩ": "milliohm", "F": "farad", "pF": "picofarad", "nF": "nanofarad", "µF": "microfarad",
    "μF": "microfarad", "mF": "millifarad", "H": "henry", "mH": "millihenry", "µH": "microhenry", "μH": "microhenry",
    "dB": "decibel", "dBA": "A-weighted decibel", "Pa": "pascal", "kPa": "kilopascal", "hPa": "hectopascal",
    "MPa": "megapascal", "GPa": "gigapascal", "mbar": "millibar", "atm": "atmosphere", "J": "joule", "kJ": "kilojoule",
    "MJ": "megajoule", "cal": "calorie", "kcal": "kilocalorie", "eV": "electron volt", "keV": "kilo electron volt",
    "MeV": "mega electron volt", "GeV": "giga electron volt", "N": "newton", "kN": "kilonewton", "Nm": "newton meter",
    "N·m": "newton meter", "lm": "lumen", "mol": "mole", "mmol": "millimole", "ha": "hectare", "ac": "acre",
    "px": "pixel", "MP": "megapixel", "rad": "radian", "Bq": "becquerel", "Sv": "sievert", "mSv": "millisievert",
    "ct": "carat", "pkg": "package", "pkgs": "package", "doz": "dozen", "qts": "quart", "pts": "point",
    "gals": "gallon", "T": "tesla", "mT": "millitesla", "K": "kelvin", "ly": "light year", "pc": "parsec",
    "AU": "astronomical unit", "t": "ton", "°": "degree",
}  # fmt: skip
_IRREGULAR = {
    "ft": ("foot", "feet"), "Hz": ("hertz", "hertz"), "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"), "GHz": ("gigahertz", "gigahertz"), "THz": ("terahertz", "terahertz"),
    "lx": ("lux", "lux"), "bar": ("bar", "bar"), "psi": ("pound per square inch", "pounds per square inch"),
    "mph": ("mile per hour", "miles per hour"), "MPH": ("mile per hour", "miles per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"), "kmh": ("kilometer per hour", "kilometers per hour"),
    "km/hr": ("kilometer per hour", "kilometers per hour"), "mpg": ("mile per gallon", "miles per gallon"),
    "fps": ("frame per second", "frames per second"), "FPS": ("frame per second", "frames per second"),
    "rpm": ("revolution per minute", "revolutions per minute"),
    "RPM": ("revolution per minute", "revolutions per minute"), "bpm": ("beat per minute", "beats per minute"),
    "BPM": ("beat per minute", "beats per minute"), "ppm": ("part per million", "parts per million"),
    "ppb": ("part per billion", "parts per billion"), "dpi": ("dot per inch", "dots per inch"),
    "ppi": ("pixel per inch", "pixels per inch"), "bps": ("bit per second", "bits per second"),
    "kbps": ("kilobit per second", "kilobits per second"), "Kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"), "Gbps": ("gigabit per second", "gigabits per second"),
    "hp": ("horsepower", "horsepower"), "HP": ("horsepower", "horsepower"),
    "mmHg": ("millimeter of mercury", "millimeters of mercury"), "lb-ft": ("pound foot", "pound feet"),
    "wpm": ("word per minute", "words per minute"), "sq ft": ("square foot", "square feet"),
    "sq. ft": ("square foot", "square feet"), "sqft": ("square foot", "square feet"),
    "cu ft": ("cubic foot", "cubic feet"), "cu. ft": ("cubic foot", "cubic feet"),
    "sq m": ("square meter", "square meters"), "sq mi": ("square mile", "square miles"),
    "sq km": ("square kilometer", "square kilometers"), "sq in": ("square inch", "square inches"),
    "sq yd": ("square yard", "square yards"), "cc": ("cubic centimeter", "cubic centimeters"), "BTU": ("BTU", "BTU"),
    "IU": ("IU", "IU"), "㎡": ("square meter", "square meters"), "㎏": ("kilogram", "kilograms"),
    "㎞": ("kilometer", "kilometers"), "㎝": ("centimeter", "centimeters"), "㎜": ("millimeter", "millimeters"),
    "°C": ("degree Celsius", "degrees Celsius"), "° C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"), "° F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "℃": ("degree Celsius", "degrees Celsius"), "℉": ("degree Fahrenheit", "degrees Fahrenheit"),
    "%": ("percent", "percent"), "‰": ("per mille", "per mille"), "st": ("stone", "stone"),
}  # fmt: skip
NAMES = {
    symbol: (name, f"{name}es" if name.endswith("ch") else f"{name}s") for symbol, name in _REGULAR.items()
} | _IRREGULAR
NAMES["H"] = ("henry", "henries")
POWERS = {"²": "square ", "2": "square ", "^2": "square ", "³": "cubic ", "3": "cubic ", "^3": "cubic "}
LENGTHS = ("mm", "cm", "dm", "m", "km", "µm", "μm", "nm", "ft", "yd", "mi", "in")
"""These have squares and cubes."""
_UNCLEAR = {
    "B", "T", "K", "H", "F", "N", "us", "ac", "pc", "ct", "t", "A", "in", "st", "mil", "kt", "MP", "AU", "HP",
    "ps", "rad", "mos", "g",
}  # fmt: skip
"""Ambiguous symbols: only in the contexts below, or before `per`."""
CLEAR = {symbol: names for symbol, names in NAMES.items() if symbol not in _UNCLEAR}
PER = {symbol: NAMES[symbol][0] for symbol in NAMES if symbol.isalpha()} | {
    "in": "inch", "person": "person", "day": "day", "week": "week", "month": "month", "year": "year", "hour": "hour",
    "minute": "minute", "second": "second", "capita": "capita", "serving": "serving", "d": "day",
}  # fmt: skip
_POWER = rf"(?:{any_of(POWERS)})"
_UNIT = (
    rf"(?:(?P<length>{any_of(LENGTHS)})(?P<power>{_POWER})(?![0-9])|(?P<over>{any_of([*NAMES, 'in'])})(?=/)|"
    rf"(?P<unit>{any_of(CLEAR)})|(?P<grams>g)(?=[^A-Za-z0-9]|$))"
)
_RATE = rf"(?:/(?P<per>{any_of(PER)})(?P<perpower>[²³]|\^[23])?)?"
_NO_NOUN = (
    "of|in|is|are|was|were|and|or|to|for|at|on|from|with|than|per|by|as|but|that|which|when|if|so|about|into|over|"
    "under|until|within|will|long|wide|tall|high|deep|thick|away|apart|left|more|less|later|ago|each|every|today|this|"
    "the|it|they|we|you|he|she|can|has|have|had|should|would|between|before|after|back|off|up|down|above|below|north|"
    "south|east|west|then|too|only|now|because|while|during|since|through|without|around|inside|outside|per"
)
NOUN_FOLLOWS = re.compile(rf"[ -](?!(?:{_NO_NOUN})\b)(?:[a-z]{{3}}|[A-Z]{{2}})")
ONE_OF_THEM = re.compile(
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


def is_attributive(match: re.Match[str]) -> bool:
    """Whether the measure precedes the noun that it describes: a 5 km run, a 15-oz can."""
    if match["joint"] == "-":
        return re.match(r"[ -][a-z]{3}", match.string[match.end() : match.end() + 4]) is not None
    one_of_them = ONE_OF_THEM.search(match.string, max(0, match.start() - 20), match.start())
    return one_of_them is not None and NOUN_FOLLOWS.match(match.string, match.end()) is not None


def amounts_of(match: re.Match[str], between: str = "to") -> str:
    """The amount, after the lower end of its range where there is one."""
    low = f"{spoken_quantity(match['low'])} {between} " if match["low"] else ""
    return low + spoken_quantity(match["high"])


def _measure(match: re.Match[str]) -> str:
    one, many = _names(match)
    singular = is_attributive(match) or (not match["low"] and is_singular(match["high"]))
    return f"{amounts_of(match)} {one if singular else many}{_per(match)}{full_stop_after(match)}"


def full_stop_after(match: re.Match[str]) -> str:
    """The full stop of an abbreviation is removed, that of a sentence stays."""
    goes_on = match["dot"] is None or re.match(r"[ ][a-z0-9(]|[,;:]", match.string[match.end() : match.end() + 2])
    return "" if goes_on else "."


def _of_inches(match: re.Match[str]) -> str:
    attributive = match["joint"] == "-" or (match["joint"] == " " and is_attributive(match))
    amounts = amounts_of(match, "by" if match["by"] and match["by"].strip() in "x×" else "to")
    return f"{amounts} {'inch' if is_singular(match['high']) or attributive else 'inches'}{full_stop_after(match)}"


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
    return f"{spoken_quantity(match['high'])} {'amp' if match['high'] == '1' or is_attributive(match) else 'amps'}"


def _degrees(match: re.Match[str]) -> str:
    if _SEAT.search(match.string, max(0, match.start() - 20), match.start()):
        return match[0]
    return f"{amounts_of(match)} degrees {'Celsius' if match['scale'] == 'C' else 'Fahrenheit'}"


def with_inches(text: str) -> str:
    """`text` with inches in words that are written with a double prime or quotation mark: `27"`
    where no quotation is open that the sign could close.
    """
    if not any(sign in text for sign in '"”″'):
        return text
    spoken, start, quotes = [], 0, 0
    for match in _INCH_SIGN.finditer(text):
        quotes += text.count('"', start, match.start())
        spoken.append(text[start : match.start()])
        start = match.end()
        if match["sign"] == '"' and quotes % 2:
            quotes += 1
            spoken.append(match[0])
            continue
        article = match.string[max(0, match.start() - 2) : match.start()].lower() in ("a ", "n ")
        attributive = article and NOUN_FOLLOWS.match(text, match.end())
        spoken.append(f"{amounts_of(match, 'by')} {'inch' if attributive or is_singular(match['high']) else 'inches'}")
    return "".join([*spoken, text[start:]])


def _without_figure(match: re.Match[str]) -> str:
    """Singular after `per`, plural after `in`."""
    one, many = NAMES[match["unit"]]
    power = POWERS.get(match["power"], "")
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
