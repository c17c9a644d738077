"""Powers, roots, indices, chemical formulas, scientific notation, and hexadecimal numbers."""

import re

from services.frontend.normalization.english import numerals
from services.frontend.normalization.english.numbers.units import NAMES
from services.frontend.normalization.english.numerals import NUMBER
from services.frontend.text.rules import Rule, any_of

_UP = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_DOWN = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_ABOVE, _BELOW = "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"
_FORMULAS = (
    "NaCl|HCl|KCl|NaOH|MgO|CaO|NaF|CO2|H2O2|H2O|H2SO4|HNO3|CH4|NH3|NO2|N2O|SO2|O2|O3|N2|H2|CaCO3|C6H12O6|H3PO4|Fe2O3|"
    "C2H5OH|NaHCO3|Na2CO3"
)
_CHARGES = "²³⁴⁺⁻"
_PRODUCT = re.compile("[b-df-hj-np-tv-z]{2,3}")
_CHARGE = {"+": "plus", "-": "minus"}
_BASES = {"0b": "binary "}
_UNITS = any_of(
    symbol
    for symbol in ("m", "km", "cm", "mm", "nm", "kg", "g", "mg", "s", "J", "kJ", "W", "kW", "Hz", "eV", "Pa")
    if symbol in NAMES
)
_SHORT = {"2": "squared", "3": "cubed"}


def _raised(match: re.Match[str]) -> str:
    power = match["power"].translate(_UP)
    base = match["base"]
    base = numerals.amount(base) if base[0].isdigit() or base[0] == "." else _base(base)
    if power in _SHORT:
        return f"{base} {_SHORT[power]}{_unit(match)}"
    if power == "n":
        return f"{base} to the n"
    minus = "minus " if power[0] == "-" else ""
    return f"{base} to the {minus}{numerals.ordinal(power.lstrip('-+') or '0')}{_unit(match)}"


def _base(name: str) -> str:
    """A variable, or a product of several: the name of each letter (`mc²`)."""
    return " ".join(name.upper()) if name == "a" or _PRODUCT.fullmatch(name) else name


def _unit(match: re.Match[str]) -> str:
    """The unit after a power of a number, in the plural."""
    written = match.groupdict().get("unit")
    return "" if not written else f" {NAMES[written][1]}"


def _caret(match: re.Match[str]) -> str:
    base, power = match["base"], match["power"].strip("{()}")
    base = numerals.amount(base) if base[0].isdigit() else _base(base)
    if power in _SHORT:
        return f"{base} {_SHORT[power]}"
    if power.isalpha():
        return f"{base} to the {power}"
    minus = "minus " if power[0] in "-−" else ""
    return f"{base} to the power of {minus}{numerals.cardinal(power.lstrip('-−+'))}{_unit(match)}"


def _of_ten(match: re.Match[str]) -> str:
    power = numerals.cardinal(match["power"].lstrip("0") or "0")
    base = numerals.amount(match["base"])
    return f"{base} E minus {power}" if match["sign"] == "-" else f"{base} times ten to the power of {power}"


def _formula(match: re.Match[str]) -> str:
    parts = re.findall(r"[A-Z][a-z]?|[0-9]+", match[0].rstrip(_CHARGES).translate(_DOWN))
    words = [numerals.cardinal(part) if part.isdigit() else " ".join(part.upper()) for part in parts]
    charge = match[0][len(match[0].rstrip(_CHARGES)) :].translate(_UP)
    words += [_CHARGE.get(sign) or numerals.cardinal(sign) for sign in charge]
    return " ".join(words)


def _hex(match: re.Match[str]) -> str:
    return _BASES.get(match[0][:2].lower(), "hex ") + " ".join(
        numerals.digits(character) if character.isdigit() else character.upper() for character in match["value"]
    )


RULES: tuple[Rule, ...] = (
    (
        re.compile(
            r"(?<![\w.])(?:0[xX]|#(?=[0-9A-Fa-f]{6}\b)(?=[0-9A-Fa-f]{0,5}[A-Fa-f])(?=[0-9A-Fa-f]{0,5}[0-9]))"
            r"(?P<value>[0-9A-Fa-f]{1,16})(?![0-9A-Za-z])"
        ),
        _hex,
    ),
    (re.compile(r"(?<![\w.])0[bB](?P<value>[01]{1,64})(?![0-9A-Za-z])"), _hex),
    (
        re.compile(
            rf"(?<![\w.,])(?P<base>{NUMBER})[eE](?P<sign>[+−-]?)(?P<power>[0-9]{{1,3}})(?![0-9A-Za-z]|[.,][0-9])"
        ),
        _of_ten,
    ),
    (
        re.compile(
            rf"(?<![\w.,])(?P<base>{NUMBER}|[A-Za-z]{{1,3}}) ?\^ ?(?P<power>\{{?[-−]?[0-9]{{1,4}}\}}?|"
            rf"\([-−]?[0-9]{{1,4}}\)|[a-z])(?![A-Za-z0-9])(?:[ ](?P<unit>{_UNITS})(?![A-Za-z0-9/²³]))?"
        ),
        _caret,
    ),
    (
        re.compile(
            rf"(?:[A-Z][a-z]?[{_BELOW}]{{0,3}}|\([A-Z][A-Za-z{_BELOW}]{{1,10}}\)[{_BELOW}]{{0,3}}){{0,12}}[A-Z][a-z]?"
            rf"[{_BELOW}]{{1,3}}(?:[A-Z][a-z]?(?![a-z]))?(?:[²³⁴]?[⁺⁻](?![⁰-⁹²³¹]))?"
        ),
        _formula,
    ),
    (re.compile(rf"\b(?:{_FORMULAS})\b"), _formula),
    (re.compile(rf"(?<![A-Za-z])[A-Z][a-z]?[²³⁴]?[⁺⁻](?![{_ABOVE}])"), _formula),
    (re.compile(rf"(?<=[A-Za-z])[{_BELOW}]{{1,4}}"), lambda match: f" {numerals.cardinal(match[0].translate(_DOWN))}"),
    (
        re.compile(
            rf"(?<![\w.,])(?P<base>{NUMBER})(?P<power>[⁻⁺]?[{_ABOVE}]{{1,4}})[ ](?P<unit>{_UNITS})(?![A-Za-z0-9/²³])"
        ),
        _raised,
    ),
    (re.compile(rf"(?<![\w.,])(?P<base>{NUMBER}|[A-Za-zπ]{{1,12}})(?P<power>[⁻⁺]?[{_ABOVE}]{{1,4}}|ⁿ)"), _raised),
    (re.compile(rf"(?P<base>[rxyzabn])(?P<power>[⁻⁺]?[{_ABOVE}]{{1,4}}|ⁿ)"), lambda match: " " + _raised(match)),
    (re.compile(r"√[ ]?(?=[0-9A-Za-z(.])"), "the square root of "),
    (re.compile(r"∛[ ]?(?=[0-9A-Za-z(.])"), "the cube root of "),
)
