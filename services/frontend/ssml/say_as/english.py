"""Values as English words. Fields are strings of digits as they are written; signs are "+", "-" or
empty.
"""

import re
from collections.abc import Callable

from services.frontend.text import english_numbers as numbers
from services.frontend.tokenizers.phonemes.symbols import spell as letters_by_name

CURRENCIES = {
    "$": "USD", "USD": "USD", "€": "EUR", "EUR": "EUR", "£": "GBP", "GBP": "GBP", "¥": "CNY", "￥": "CNY", "CNY": "CNY",
    "RMB": "CNY", "元": "CNY", "JPY": "JPY",
}  # fmt: skip
"""Maps signs and codes to the code of the currency."""
_MONEY = {
    "USD": ("dollar", "dollars", "cent", "cents"), "EUR": ("euro", "euros", "cent", "cents"),
    "GBP": ("pound", "pounds", "penny", "pence"), "CNY": ("yuan", "yuan", "fen", "fen"),
    "JPY": ("yen", "yen", "sen", "sen"),
}  # fmt: skip
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_UNITS = {
    "mm": "millimeter", "cm": "centimeter", "m": "meter", "km": "kilometer", "mg": "milligram", "g": "gram",
    "kg": "kilogram", "t": "ton", "ml": "milliliter", "l": "liter", "in": "inch", "ft": "foot", "yd": "yard",
    "mi": "mile", "oz": "ounce", "lb": "pound", "gal": "gallon", "ms": "millisecond", "s": "second", "min": "minute",
    "h": "hour", "hz": "hertz", "khz": "kilohertz", "mhz": "megahertz", "ghz": "gigahertz", "w": "watt",
    "kw": "kilowatt", "kwh": "kilowatt hour", "v": "volt", "a": "ampere", "kb": "kilobyte", "mb": "megabyte",
    "gb": "gigabyte", "tb": "terabyte", "km/h": "kilometer per hour", "mph": "mile per hour", "m/s": "meter per second",
    "%": "percent", "°": "degree", "°c": "degree Celsius", "℃": "degree Celsius", "°f": "degree Fahrenheit",
    "℉": "degree Fahrenheit", "m2": "square meter", "m²": "square meter", "km2": "square kilometer",
    "km²": "square kilometer", "m³": "cubic meter", "hr": "hour", "sec": "second", "lbs": "pound",
    "kph": "kilometer per hour", "px": "pixel",
}  # fmt: skip
_PLURALS = {
    "inch": "inches",
    "foot": "feet",
    "hertz": "hertz",
    "kilohertz": "kilohertz",
    "megahertz": "megahertz",
    "gigahertz": "gigahertz",
    "percent": "percent",
}
_BELOW = {"2": ("half", "halves"), "4": ("quarter", "quarters")}
_SIGNS = {
    "-": "dash", "_": "underscore", ".": "dot", "/": "slash", "\\": "backslash", "@": "at", "#": "hash", "&": "and",
    "+": "plus", "*": "star", "%": "percent", "=": "equals", ":": "colon", "$": "dollar sign", "!": "exclamation mark",
    "?": "question mark", "~": "tilde", ",": "comma", ";": "semicolon", "'": "apostrophe", '"': "quote",
    "(": "open parenthesis", ")": "close parenthesis",
}  # fmt: skip


_LETTERS_OR_CHARACTER = re.compile("[A-Za-z]+|.", re.DOTALL)


def unit_of(written: str) -> str | None:
    """The abbreviation of a unit, None for an unknown one. Words are accepted too: "kilograms"."""
    plain = written.lower()
    if plain in _UNITS:
        return plain
    for short, name in _UNITS.items():
        if plain in (name, _plural(name)):
            return short
    return None


def characters(written: str, spell: Callable[[str], str] | None) -> str:
    """Letters by name, digits and signs as words. spell: returns the placeholder for the phonemes
    of letters; None: capital letters.
    """
    words = list[str]()
    for part in _LETTERS_OR_CHARACTER.findall(written):
        if part.isascii() and part.isalpha():
            words.append(spell(letters_by_name(part)) if spell else " ".join(part.upper()))
        elif part.isascii() and part.isdigit():
            words += numbers.digit_by_digit(part)
        elif part.strip():
            words.append(_SIGNS.get(part, part.upper()))
    return " ".join(words)


def _cardinal(sign: str, whole: str, decimals: str) -> str:
    words = ["minus"] if sign in ("-", "\u2212") else []
    words += numbers.whole(whole.lstrip("0") or "0")
    return " ".join([*words, "point", *numbers.digit_by_digit(decimals)] if decimals else words)


def _ordinal(whole: str) -> str:
    return " ".join(numbers.ordinal(whole.lstrip("0") or "0"))


def _digits(digits: str) -> str:
    return " ".join(numbers.digit_by_digit(digits))


def _telephone(plus: str, *groups: str) -> str:
    return ("plus " if plus else "") + ", ".join(_digits(group) for group in groups)


def _date(year: str, month: str, day: str) -> str:
    ordinal = " ".join(numbers.ordinal(day)) if day else ""
    words = " ".join(
        [*([_MONTHS[int(month) - 1]] if month else []), *([ordinal if month else f"the {ordinal}"] if day else [])]
    )
    spoken_year = " ".join(numbers.year(year) if len(year) == 4 else numbers.whole(year)) if year else ""
    return (", " if day else " ").join(part for part in (words, spoken_year) if part)


def _time(hours: str, minutes: str, seconds: str, half: str) -> str:
    words = numbers.whole(str(int(hours)))
    if minutes.strip("0"):
        words += numbers.clock("0", minutes)[1:]
    elif not half and not seconds:
        words.append("o'clock" if 0 < int(hours) <= 12 else "hundred")
    if seconds:
        words += ["and", *numbers.whole(str(int(seconds))), "second" if int(seconds) == 1 else "seconds"]
    return " ".join([*words, *([f"{half.upper()}M"] if half else [])])


def _currency(sign: str, whole: str, decimals: str, code: str) -> str:
    unit, units, part, parts = _MONEY[code]
    if len(decimals) > 2 or code == "JPY":
        return f"{_cardinal(sign, whole, decimals)} {units}"
    minus = "minus " if sign in ("-", "\u2212") else ""
    amount, cents = whole.lstrip("0") or "0", int(decimals.ljust(2, "0")) if decimals else 0
    small = f"{_cardinal('', str(cents), '')} {part if cents == 1 else parts}"
    if cents and amount == "0":
        return minus + small
    large = f"{_cardinal('', amount, '')} {unit if amount == '1' else units}"
    return minus + (f"{large} {small}" if cents else large)


def _fraction(sign: str, whole: str, above: str, below: str) -> str:
    above, below = above.lstrip("0") or "0", below.lstrip("0")
    one, many = _BELOW.get(below, (_ordinal(below), _ordinal(below) + "s"))
    words = f"{_cardinal('', above, '')} {'over one' if below == '1' else one if above == '1' else many}"
    if whole:
        # One and a half; two and three quarters.
        article = words.replace("one ", "a ", 1) if above == "1" and below in _BELOW else words
        words = f"{_cardinal('', whole, '')} and {article}"
    return ("minus " if sign in ("-", "\u2212") else "") + words


def _unit(sign: str, whole: str, decimals: str, unit: str) -> str:
    name = _UNITS[unit]
    return f"{_cardinal(sign, whole, decimals)} {name if whole.lstrip('0') == '1' and not decimals else _plural(name)}"


def _plural(name: str) -> str:
    if name in _PLURALS:
        return _PLURALS[name]
    first, per, rest = name.partition(" per ")
    head, _, tail = first.partition(" ")
    counted = f"{head}s {tail}" if head == "degree" and tail else f"{first}s"
    return counted + per + rest


WORDS: dict[str, Callable[..., str]] = {
    "cardinal": _cardinal, "ordinal": _ordinal, "digits": _digits, "telephone": _telephone, "date": _date,
    "time": _time, "currency": _currency, "fraction": _fraction, "unit": _unit,
}  # fmt: skip
"""Maps a kind to the function that puts its fields into words; `characters` is separate."""
