"""Signs that are read as words (`© 2019`, `§ 4`, `α`, `°`) and markers of a list within running
text (`1) two eggs, 2) a cup`, `(a) Sign here.`).
"""

import re

from services.frontend.normalization.english import numerals
from services.frontend.normalization.english.roman import value
from services.frontend.text.rules import Rule, any_of, apply_rules

_FIRST = re.compile(r"(?:^|\n|: )1\.[ ]+[A-Za-z\"“‘']")
_OPEN = r"(?:^|(?<=\n)|(?<=[.,;:!?] )|(?<=[a-z] ))"


def _marked(match: re.Match[str]) -> str:
    mark = match["mark"]
    return f"{numerals.cardinal(mark) if mark.isdigit() else mark.upper()}, "


def _roman(match: re.Match[str]) -> str:
    return f"{numerals.cardinal(str(value(match['mark'])))}, "


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
_WORDS = {
    "©": "copyright", "№": "number", "§§": "sections", "§": "section", "¶": "paragraph", "∞": "infinity",
    "∑": "the sum of", "∫": "the integral of", "℅": "care of", "¢": "cents", "°": "degrees", "‰": "per mille",
    "√": "root", "≈": "about", "≠": "is not equal to", "≤": "at most", "≥": "at least", "±": "plus or minus",
    "÷": "divided by", "×": "times", "₿": "bitcoin", "₹": "rupees", "€": "euros", "£": "pounds", "℃": "degrees Celsius",
    "℉": "degrees Fahrenheit", "%": "percent", "∅": "the empty set", "∂": "partial", "∇": "nabla",
}  # fmt: skip
_UNSPOKEN = re.compile(r"[®™℠]")
GREEK_LETTERS = "".join(_GREEK)
RULES: tuple[Rule, ...] = (
    (_UNSPOKEN, ""),
    (re.compile(r"(?<=[A-Za-z0-9])&(?=[A-Za-z0-9])"), " and "),
    (re.compile(r"(?<= )&&?(?= )"), "and"),
    (re.compile(rf"[ ]?(?P<sign>{any_of(_WORDS)})[ ]?"), lambda match: _divided(match, _WORDS)),
    (re.compile(rf"(?P<sign>[{GREEK_LETTERS}])(?![\u0370-\u03ff])"), lambda match: _divided(match, _GREEK)),
)


def _divided(match: re.Match[str], words: dict[str, str]) -> str:
    """The word, separated by a blank from adjacent letters."""
    text = match.string
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    left = " " if match[0][0] == " " or before.isalnum() else ""
    right = " " if match[0][-1] == " " or after.isalnum() else ""
    return f"{left}{words[match['sign']]}{right}"
