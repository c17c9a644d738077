"""Quantities: whole numbers, decimals, fractions, mixed numbers and their ranges."""

import re

from services.frontend.normalization.english import numerals

_SIGNS = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8", "⅐": "1/7", "⅑": "1/9", "⅒": "1/10",
}  # fmt: skip
FRACTION_SIGNS = "".join(_SIGNS)
NUMBER = rf"(?:(?:{numerals.GROUPED}|[0-9]{{1,15}})(?:\.[0-9]{{1,20}})?|\.[0-9]{{1,20}})"
_PROPER = r"[0-9]{1,3}[/⁄][0-9]{1,3}"
QUANTITY = rf"(?:[0-9]{{1,4}}[ -]{_PROPER}|{_PROPER}|(?:[0-9]{{1,4}} ?)?[{FRACTION_SIGNS}]|{NUMBER})"
"""The caller checks the context."""
ALONE = r"(?<![\w.,/^$£€¥₹-])"
"""Before a quantity: it is not part of something longer."""
_MIXED = re.compile(
    rf"(?:(?P<whole>[0-9]{{1,4}})[ -]?)?(?:(?P<above>[0-9]{{1,3}})[/⁄](?P<below>[0-9]{{1,3}})|"
    rf"(?P<sign>[{FRACTION_SIGNS}]))"
)
_DENOMINATORS = {2: "half", 4: "quarter"}


def spoken_quantity(quantity: str) -> str:
    """`"5 1/2"` as five and a half, `"⅔"` as two thirds, `"1,250.5"` as one thousand two hundred
    and fifty point five.
    """
    mixed = _MIXED.fullmatch(quantity.strip())
    if mixed is None:
        return numerals.amount(quantity.strip())
    above, below = (_SIGNS[mixed["sign"]] if mixed["sign"] else f"{mixed['above']}/{mixed['below']}").split("/")
    if not mixed["whole"]:
        return fraction(above, below)
    part = fraction(above, below)
    return f"{numerals.cardinal(mixed['whole'])} and {'a' + part[3:] if part.startswith('one ') else part}"


def fraction(above: str, below: str) -> str:
    """`"3", "4"` as three quarters; `"17", "23"` as seventeen over twenty three; also "over" for a
    zero denominator.
    """
    value = int(below)
    if value < 2 or (value > 20 and value not in (32, 64, 100)):
        return f"{numerals.cardinal(above)} over {numerals.cardinal(below)}"
    name = _DENOMINATORS.get(value) or numerals.ordinal(below).replace(" ", "-")
    if above.strip("0") != "1":
        name = "halves" if value == 2 else f"{name}s"
    return f"{numerals.cardinal(above)} {name}"


def is_singular(quantity: str) -> bool:
    """Whether a unit after it is in the singular: one, and fractions of one."""
    bare = quantity.strip()
    mixed = _MIXED.fullmatch(bare)
    return bare == "1" or (
        mixed is not None and not mixed["whole"] and (bool(mixed["sign"]) or int(mixed["above"]) < int(mixed["below"]))
    )
