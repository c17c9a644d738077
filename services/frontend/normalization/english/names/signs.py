"""Signs that are read as words: `© 2019`, `§ 4`, `α`, `°`."""

import re

from services.frontend.text.rules import Rule, any_of

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
    (re.compile(rf"[ ]?(?P<sign>{any_of(_WORDS)})[ ]?"), lambda found: _divided(found, _WORDS)),
    (re.compile(rf"(?P<sign>[{GREEK_LETTERS}])(?![\u0370-\u03ff])"), lambda found: _divided(found, _GREEK)),
)


def _divided(found: re.Match[str], words: dict[str, str]) -> str:
    """The word, separated by a blank from adjacent letters."""
    text = found.string
    before, behind = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
    left = " " if found[0][0] == " " or before.isalnum() else ""
    right = " " if found[0][-1] == " " or behind.isalnum() else ""
    return f"{left}{words[found['sign']]}{right}"
