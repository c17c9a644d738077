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
