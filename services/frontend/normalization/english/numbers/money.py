"""Amounts of money, their ranges and rates."""

import re

from services.frontend.normalization.english import numerals
from services.frontend.normalization.english.numerals import NUMBER
from services.frontend.text.rules import Rule, any_of

_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"), "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"), "¥": ("yen", "yen", "sen", "sen"), "￥": ("yen", "yen", "sen", "sen"),
    "₹": ("rupee", "rupees", "paisa", "paise"), "₩": ("won", "won", "jeon", "jeon"),
    "₽": ("ruble", "rubles", "kopek", "kopeks"), "₺": ("lira", "lira", "kurus", "kurus"),
    "₪": ("shekel", "shekels", "agora", "agorot"), "₿": ("bitcoin", "bitcoins", "", ""), "₫": ("dong", "dong", "", ""),
    "₱": ("peso", "pesos", "centavo", "centavos"), "฿": ("baht", "baht", "satang", "satang"),
    "₦": ("naira", "naira", "kobo", "kobo"), "₴": ("hryvnia", "hryvnias", "kopiyka", "kopiykas"),
}  # fmt: skip
_COUNTRIES = {"US": "US ", "A": "Australian ", "AU": "Australian ", "C": "Canadian ", "CA": "Canadian ",
    "HK": "Hong Kong ",
    "NZ": "New Zealand ", "S": "Singapore "}  # fmt: skip
_CODES = {
    "USD": ("US dollar", "US dollars"), "EUR": ("euro", "euros"), "GBP": ("pound", "pounds"), "CNY": ("yuan", "yuan"),
    "RMB": ("yuan", "yuan"), "JPY": ("yen", "yen"), "CHF": ("Swiss franc", "Swiss francs"), "INR": ("rupee", "rupees"),
    "CAD": ("Canadian dollar", "Canadian dollars"), "AUD": ("Australian dollar", "Australian dollars"),
}  # fmt: skip
_SCALES = {
    "k": "thousand", "K": "thousand", "m": "million", "M": "million", "mn": "million", "mm": "million", "MM": "million",
    "mil": "million", "b": "billion", "B": "billion", "bn": "billion", "T": "trillion", "tn": "trillion",
    "Bn": "billion", "Mn": "million",
}  # fmt: skip
_SIGN = f"[{''.join(_CURRENCIES)}]"
_SCALE = (
    rf"(?:(?:[ ]|-)?(?P<word>hundred|thousand|million|billion|trillion|lakh|crore)\b|[ ]?(?P<letter>{any_of(_SCALES)})"
    rf"(?![A-Za-z0-9]))"
)
_FOLLOWED = (
    "(?P<of>(?=[ ](?!(?:and|or|for|per|to|in|on|at|by|from|with|than|but|is|was|are|were|will|each|every|off|more|less|"
    r"extra|now|today|when|as|if|so|back|worth|out|up)\b)[a-z]{3}))?"
)
_PRICED = re.compile(
    r"\b(?:an?|the|his|her|my|your|our|their|this|that|another|every|each) (?:[a-z]{3,12} )?$", re.IGNORECASE
)
_PER = {
    "hr": "hour", "h": "hour", "hour": "hour", "day": "day", "wk": "week", "week": "week", "mo": "month",
    "month": "month", "yr": "year", "year": "year", "night": "night", "lb": "pound", "kg": "kilogram", "oz": "ounce",
    "gal": "gallon", "person": "person", "unit": "unit", "user": "user", "seat": "seat", "item": "item",
    "min": "minute", "minute": "minute", "mi": "mile", "mile": "mile", "ft": "foot", "share": "share", "ton": "ton",
    "barrel": "barrel", "piece": "piece", "kWh": "kilowatt hour", "GB": "gigabyte", "call": "call", "L": "liter",
    "l": "liter", "m": "meter", "km": "kilometer", "sqft": "square foot", "word": "word", "page": "page", "ea": "piece",
    "bbl": "barrel", "sq ft": "square foot", "sq. ft": "square foot", "hrs": "hour", "lbs": "pound", "t": "ton",
    "MWh": "megawatt hour", "TB": "terabyte", "W": "watt", "kW": "kilowatt", "mL": "milliliter", "g": "gram",
    "mg": "milligram", "bu": "bushel", "pp": "person",
}  # fmt: skip


def _parts(written: str, sign: str, *, of: bool) -> str:
    """An amount without a scale: units, and hundredths when there are two decimals."""
    one, many, part, parts = _CURRENCIES[sign]
    whole, _, decimals = written.partition(".")
    whole = whole.replace(",", "").lstrip("0")
    if len(decimals) == 1 and whole and part:
        decimals += "0"
    if len(decimals) > 2 or (decimals and not part):
        return f"{numerals.amount(written)} {one if of else many}"
    cents = int(decimals or "0")
    hundredths = f"{numerals.cardinal(str(cents))} {part if cents == 1 or of else parts}"
    if cents and not whole:
        return hundredths
    units = f"{numerals.cardinal(whole or '0')} {one if whole == '1' or of else many}"
    return f"{units} {hundredths}" if cents else units


def _money(match: re.Match[str]) -> str:
    sign = match["sign"]
    country = _COUNTRIES.get(match["country"] or "", "")
    of = match["of"] is not None and _PRICED.search(match.string, max(0, match.start() - 24), match.start()) is not None
    scale = match["word"] or _SCALES.get(match["letter"] or "", "")
    one, many = (country + form for form in _CURRENCIES[sign][:2])
    low_scale = _SCALES.get(match["lowscale"] or "", scale)
    low = f"{numerals.amount(match['low'])} {f'{low_scale} ' if low_scale != scale else ''}to " if match["low"] else ""
    if scale or country or (low and "." not in match["high"]):
        high = match["high"].removesuffix(".00")
        single = of or (high == "1" and not low and not scale)
        return f"{low}{numerals.amount(high)} {f'{scale} ' if scale else ''}{one if single else many}"
    if low:
        return f"{_parts(match['low'], sign, of=of)} to {_parts(match['high'], sign, of=of)}"
    return _parts(match["high"], sign, of=of)


def _by_code(match: re.Match[str]) -> str:
    one, many = _CODES[match["code"]]
    scale = match["word"] or _SCALES.get(match["letter"] or "", "")
    single = match["amount"] == "1" and not scale
    return f"{numerals.amount(match['amount'])} {f'{scale} ' if scale else ''}{one if single else many}"


def _rated(match: re.Match[str]) -> str:
    rates = [_PER.get(rate, rate) for rate in (match["rate"], match["also"]) if rate]
    return " per ".join([_money(match), *rates])


_NO_THING = (
    r"(?:each|apiece|off|under|over|and|only|extra|more|less|plus|half|total|free|about|above|below|around|value|cash|"
    r"online|used|small|medium|large|regular|premium|standard|basic|deluxe|new|old|hot|cold|late|gift|credit|debit|"
    r"[a-z]{2,8}(?:ed|able|ly))(?![A-Za-z0-9])"
)
_RATE = rf"(?:{any_of(_PER)}|(?!{_NO_THING})(?=[a-z]{{0,2}}[aeiou])[a-z]{{3,10}})(?![A-Za-z0-9])"
"""A unit, or a word for what a price is paid for: $9/glass."""
_START = r"(?<![\w.,])"
RULES: tuple[Rule, ...] = (
    (re.compile(rf"{_START}(?P<amount>{NUMBER})[ ]?(?P<sign>[€₽₺₫₴₪£])(?![0-9])"), r"\g<sign>\g<amount>"),
    (re.compile(rf"{_START}(?P<amount>{NUMBER})(?:{_SCALE})?[ ]?(?P<code>{any_of(_CODES)})\b"), _by_code),
    (re.compile(rf"\b(?P<code>{any_of(_CODES)})[ ]?(?P<amount>{NUMBER})(?:{_SCALE})?(?![0-9]|[.,][0-9])"), _by_code),
    (
        re.compile(
            rf"(?:\b(?P<country>US|AU?|CA?|HK|NZ|S))?(?P<sign>{_SIGN})[ ]?(?:(?P<low>{NUMBER})(?P<lowscale>[kKmMbB])?[ "
            f"]?-[ ]?(?:{_SIGN})?)?(?P<high>{NUMBER})"
            rf"(?:{_SCALE})?(?![0-9]|[.,][0-9])(?:[ ]?/[ ]?(?P<rate>{_RATE})(?:/(?P<also>{_RATE}))?"
            rf"(?![A-Za-z0-9]))?{_FOLLOWED}"
        ),
        _rated,
    ),
    (
        re.compile(rf"{_START}(?:(?P<low>{NUMBER})-)?(?P<amount>{NUMBER})[ ]?¢"),
        lambda match: (
            f"{numerals.amount(match['low']) + ' to ' if match['low'] else ''}{numerals.amount(match['amount'])}"
            f" cent{'s' if match['low'] or match['amount'] != '1' else ''}"
        ),
    ),
)
