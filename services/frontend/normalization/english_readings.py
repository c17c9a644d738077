"""English reading rules in their order, which run before the grammars; and those for signs that are
read as words (`© 2019`, `§ 4`, `α`, `°`) and for markers of a list within running text (`1) two
eggs, 2) a cup`, `(a) Sign here.`).

Plain text is detected quickly: it costs one search for a character or a word that some rule reads.

Of an unfinished text, `has_begun` says whether a written form of several words may have begun at
its end: the words that decide the reading of a number may precede it by several words (`account
number is 48210937`) or follow it (`a 20 A fuse`), and such words must be read together.
"""

import re

from services.frontend.normalization.english import numerals
from services.frontend.normalization.english.names import abbreviations, identifiers, technical_names, telephone
from services.frontend.normalization.english.numbers import (
    arithmetic,
    dates,
    measures,
    money,
    plain_numbers,
    scientific,
    times,
    units,
)
from services.frontend.normalization.english.numerals import ALONE, NUMBER
from services.frontend.text.rules import Rule, any_of, apply_rules

_FIRST = re.compile(r"(?:^|\n|: )1\.[ ]+[A-Za-z\"“‘']")
_OPEN = r"(?:^|(?<=\n)|(?<=[.,;:!?] )|(?<=[a-z] ))"


def _marked(match: re.Match[str]) -> str:
    mark = match["mark"]
    return f"{numerals.cardinal(mark) if mark.isdigit() else mark.upper()}, "


def _roman(match: re.Match[str]) -> str:
    return f"{numerals.cardinal(str(numerals.roman_value(match['mark'])))}, "


_MARKERS: tuple[Rule, ...] = (
    (re.compile(rf"{_OPEN}\(?(?P<mark>[0-9]{{1,2}}|[a-h]|[A-H])\)[ ]+(?=[A-Za-z\"“‘'$£€0-9])"), _marked),
    (re.compile(rf"{_OPEN}\(?(?P<mark>i{{1,3}}|iv|vi{{0,3}}|ix|x)\)[ ]+(?=[A-Za-z\"“‘'$£€0-9])"), _roman),
    (re.compile(r"(?:^|(?<=\n))(?P<mark>[1-9][0-9]?)\.[ ]+(?=[A-Za-z\"“‘'])"), _marked),
)
_BEHIND_A_FIRST: tuple[Rule, ...] = (
    (re.compile(r"(?<=[.!?:;,] )(?P<mark>[1-9][0-9]?)\.[ ]+(?=[A-Za-z\"“‘'])"), _marked),
)


def with_markers(text: str) -> str:
    """`text` with its markers as words. Within a line a number with a full stop is a marker only
    where the list begins with 1.
    """
    begins = _FIRST.search(text) is not None
    text = apply_rules(_MARKERS, text)
    return apply_rules(_BEHIND_A_FIRST, text) if begins else text


_GREEK = {
    "π": "pi", "Π": "pi", "α": "alpha", "β": "beta", "γ": "gamma", "Γ": "gamma", "δ": "delta", "Δ": "delta",
    "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta", "Θ": "theta", "κ": "kappa", "λ": "lambda", "Λ": "lambda",
    "μ": "mu", "µ": "mu", "ν": "nu", "ξ": "xi", "ρ": "rho", "σ": "sigma", "Σ": "sigma", "τ": "tau", "φ": "phi",
    "Φ": "phi", "χ": "chi", "ψ": "psi", "Ψ": "psi", "ω": "omega", "Ω": "omega",
}  # fmt: skip
_SIGN_WORDS = {
    "©": "copyright", "№": "number", "§§": "sections", "§": "section", "¶": "paragraph", "∞": "infinity",
    "∑": "the sum of", "∫": "the integral of", "℅": "care of", "¢": "cents", "°": "degrees", "‰": "per mille",
    "√": "root", "≈": "about", "≠": "is not equal to", "≤": "at most", "≥": "at least", "±": "plus or minus",
    "÷": "divided by", "×": "times", "₿": "bitcoin", "₹": "rupees", "€": "euros", "£": "pounds", "℃": "degrees Celsius",
    "℉": "degrees Fahrenheit", "%": "percent", "∅": "the empty set", "∂": "partial", "∇": "nabla",
}  # fmt: skip
_UNSPOKEN = re.compile(r"[®™℠]")
GREEK_LETTERS = "".join(_GREEK)
_SPOKEN_SIGNS: tuple[Rule, ...] = (
    (_UNSPOKEN, ""),
    (re.compile(r"(?<=[A-Za-z0-9])&(?=[A-Za-z0-9])"), " and "),
    (re.compile(r"(?<= )&&?(?= )"), "and"),
    (re.compile(rf"[ ]?(?P<sign>{any_of(_SIGN_WORDS)})[ ]?"), lambda match: _divided(match, _SIGN_WORDS)),
    (re.compile(rf"(?P<sign>[{GREEK_LETTERS}])(?![\u0370-\u03ff])"), lambda match: _divided(match, _GREEK)),
)


def _divided(match: re.Match[str], words: dict[str, str]) -> str:
    """The word, separated by a blank from adjacent letters."""
    text = match.string
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    left = " " if match[0][0] == " " or before.isalnum() else ""
    right = " " if match[0][-1] == " " or after.isalnum() else ""
    return f"{left}{words[match['sign']]}{right}"


_POINTS = {"N": "north", "S": "south", "E": "east", "W": "west"}
_FIXED: tuple[Rule, ...] = (
    (re.compile(r"(?<![A-Za-z0-9])24/7(?![0-9/])"), "twenty four seven"),
    (re.compile(r"(?<![A-Za-z0-9/])9/11(?![0-9/])"), "nine eleven"),
    (re.compile(r"(?<![A-Za-z0-9/])50/50(?![0-9/])"), "fifty fifty"),
    (re.compile(r"(?<![\w&])#(?=[0-9]{1,3}(?![0-9A-Za-z]))"), "number "),
    (
        re.compile(r"(?<![\w.,$£€¥₹-])802\.(?P<kind>[0-9]{1,2})(?P<letters>[a-z]{0,2})(?![A-Za-z0-9%]|\.[0-9])"),
        lambda match: " ".join(["eight oh two point", numerals.cardinal(match["kind"]), *match["letters"].upper()]),
    ),
    (
        re.compile(r"(?<=[0-9])[ ]?°[ ]?(?P<point>[NSEW])(?![A-Za-z0-9])"),
        lambda match: f" degrees {_POINTS[match['point']]}",
    ),
)
_CLEAR = any_of(units.CLEAR)
_TWO_MEASURES: Rule = (
    re.compile(
        rf"(?P<first>{ALONE}{NUMBER}[ ]?(?P<unit>{_CLEAR}))/"
        rf"(?=(?P<second>{NUMBER})[ ]?(?P<per>{_CLEAR})(?![A-Za-z0-9]))"
    ),
    # 6.5 L/100 km is a rate; 120 V/60 Hz are two measures, and so are 3 GB/10 GB.
    lambda match: (
        f"{match['first']}{' per ' if match['second'].strip('0') == '1' and match['unit'] != match['per'] else ', '}"
    ),
)
_SEVERAL_OF: Rule = (
    re.compile(
        rf"{ALONE}(?P<number>[1-9][0-9]?)(?:(?P<times>[x×][ ])|[ ]?[x×][ ]?)(?![0-9]+s(?![A-Za-z]))"
        rf"(?={NUMBER}[ ]?(?:(?P<length>{any_of(units.LENGTHS)})|{_CLEAR})(?![A-Za-z0-9²³]))"
    ),
    # A 4 by 100 m relay, 2 times 500 ml; `3x 10 m` are three times ten meters.
    lambda match: (
        f"{numerals.cardinal(match['number'])} {'by' if match['length'] and not match['times'] else 'times'} "
    ),
)
_WITH_FIGURES: tuple[Rule, ...] = (
    *numerals.GROUPING, *abbreviations.COUNTED, *_FIXED, *measures.RULES, _TWO_MEASURES, _SEVERAL_OF, *telephone.RULES,
    *identifiers.RULES, *dates.RULES, *times.RULES, *plain_numbers.VERSIONS, *arithmetic.IN_FRONT, *money.RULES,
    *plain_numbers.DECADES, *plain_numbers.MILLIONS,
)  # fmt: skip
_SIGN_OR_PATH = re.compile(
    r"[^A-Za-z0-9\s.,;:!?'’‘\"“”()\[\]…—–-]|(?<!\w)-\w|(?<!\w)\.\w|(?:Ctrl|Cmd)-\w|"
    r"(?<![A-Za-z0-9])(?:[A-FO]|AB)-(?![\w-])"
)
_FIGURES = re.compile(r"[0-9½-¾⅐-⅞]")
_STOPPED = re.compile(r"(?<![A-Za-z])([A-Za-z]{1,8})\.")
_ABBREVIATED = abbreviations.KEYS | dates.KEYS
_JOINED = re.compile(r"[a-z][A-Z0-9]|[A-Z]{2}|\.[A-Za-z]")
_NUMERAL = re.compile(r" (?:[IVX](?![A-Za-z'’])|[ivx]{2,4}\b)")
_WORDS = re.compile(r"[A-Za-z]{3,}[0-9]?")
_MARKER = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z]|[ivx]{2,4})\)")
_UNIT = re.compile(r"\b(?:per|in) (?:[mck]?m|ft|[mk]g|k?W|[MGT]B|m[lL]|oz|lbs?|gal|hr|sec)")


def rewrite(text: str) -> str:
    """`text` with written forms as words, or in a form that the grammars read correctly."""
    if "-" in text or "–" in text:
        text = dates.WEEKDAYS[0].sub(dates.WEEKDAYS[1], text)
    if "Tue" in text or "Wed" in text or "Thu" in text or "Fri" in text:
        text = apply_rules(dates.BARE_WEEKDAYS, text)
    figures, signed = _FIGURES.search(text) is not None, _SIGN_OR_PATH.search(text) is not None
    if figures or signed or (")" in text and _MARKER.search(text)):
        text = with_markers(text)
    if signed:
        text = apply_rules(telephone.KEYS, text)
    if signed or ("." in text and re.search(r"\.[A-Za-z]", text)):
        text = apply_rules(technical_names.PATHS, apply_rules(technical_names.PROGRAMMING, text))
    if figures:
        text = units.with_inches(apply_rules(units.RULES, apply_rules(_WITH_FIGURES, text)))
    if _UNIT.search(text):
        text = apply_rules(units.WITHOUT_FIGURE, text)
    if figures or signed:
        text = apply_rules((*scientific.RULES, *arithmetic.RATIOS, *arithmetic.RULES), text)
    if "/" in text:
        text = apply_rules(technical_names.JOINED_WORDS, text)
    if signed:
        text = apply_rules(_SPOKEN_SIGNS, text)
    stopped = _STOPPED.findall(text)
    if any(len(word) == 1 or word in _ABBREVIATED for word in stopped) or " vs " in text:
        text = apply_rules(abbreviations.RULES, apply_rules(dates.SHORTENED, text))
    joined = _JOINED.search(text) is not None
    if joined or _NUMERAL.search(text):
        text = apply_rules(numerals.ROMAN, text)
    if joined:
        text = identifiers.CITY_AND_STATE[0].sub(identifiers.CITY_AND_STATE[1], text)
    if " Ave" in text:
        text = identifiers.AVENUE[0].sub(identifiers.AVENUE[1], text)
    if not technical_names.SPOKEN.keys().isdisjoint(_WORDS.findall(text.lower())) or joined:
        text = apply_rules(technical_names.RULES, text)
    return apply_rules(plain_numbers.RULES, text) if figures else text


REACH = 80
"""Characters at the end of the text that are examined."""
_NAMED = frozenset(
    [
        "account",
        "accounts",
        "acct",
        "pin",
        "passcode",
        "password",
        "otp",
        "isbn",
        "issn",
        "ssn",
        "iban",
        "serial",
        "card",
        "zip",
        "postal",
        "postcode",
        "code",
        "tracking",
        "confirmation",
        "passport",
        "routing",
        "booking",
        "reservation",
        "membership",
        "member",
        "employee",
        "customer",
        "license",
        "plate",
        "locker",
        "combination",
        "extension",
        "badge",
        "invoice",
        "policy",
        "reference",
        "id",
        "ticket",
        "flight",
        "flights",
        "number",
        "fax",
        "line",
        "hotline",
        "lifeline",
        "helpline",
        "pressure",
        "bp",
        "odds",
        "ratio",
        "scale",
    ]
)
"""Words that decide the reading of a number up to three words after them."""
_WORDS_BEFORE = 4
_WORDS_AFTER = 2
"""Words after a number that decide its reading."""
_OTHER_PARTS = "type|phase|stage|chapter|part|act|scene|book|volume|class|level|section"
_BEFORE_ROMAN = frozenset("|".join((numerals.PARTS, numerals.RULERS, _OTHER_PARTS)).split("|"))
_WITH_MINUS = re.compile("[A-FO]-")
"""`B- in art`."""
_SEVERAL = re.compile("[A-Z][a-z]+s")
"""`World Wars I and II`."""
_ROMAN_NUMERAL = re.compile(r"[IVXLCDM]{2,8}|[ivx]{2,5}")


def has_begun(text: str) -> bool:
    """Whether a form may continue after `text`, which ends between two words."""
    words = text[-REACH:].split()[-_WORDS_BEFORE:]
    if not words:
        return False
    return (
        words[-1] in _BEFORE_ROMAN
        or _WITH_MINUS.fullmatch(words[-1]) is not None
        or (words[-1] == "I" and _SEVERAL.fullmatch(words[-2] if len(words) > 1 else "") is not None)
        or any(word.rstrip(":,#").lower() in _NAMED for word in words)
        or any(_FIGURES.search(word) is not None for word in words[-_WORDS_AFTER:])
    )


def is_roman_numeral(word: str) -> bool:
    """Whether `word`, letters only, may be a Roman numeral, which is read with its neighbours."""
    return _ROMAN_NUMERAL.fullmatch(word.rstrip(",")) is not None
