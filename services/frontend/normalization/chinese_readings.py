"""Chinese reading rules, which run before the grammars; the grammars read what no rule matches.

Rules are tried in order: identifiers (telephone, room, flight) before dates, dates before
arithmetic, and plain numbers last. A rule decides by the words around a number. Each is linear in
the length of the text: every repetition is bounded.
"""

import re

from services.frontend.normalization import chinese_readings as chinese_signs
from services.frontend.normalization.chinese import arithmetic as chinese_arithmetic
from services.frontend.normalization.chinese import calendar as chinese_calendar
from services.frontend.normalization.chinese import codes as chinese_codes
from services.frontend.normalization.chinese import quantities as chinese_quantities
from services.frontend.text.chinese_numbers import digits
from services.frontend.text.rules import Rule, apply_rules

_DOTTED: tuple[Rule, ...] = (
    (
        re.compile(
            r"(?<![0-9.])(?!(?:19|20)[0-9]{2}\.[01]?[0-9]\.[0-3]?[0-9](?![0-9.]))[0-9]{1,4}(?:\.[0-9]{1,4}){2,5}"
            r"(?![0-9]|\.[0-9])"
        ),
        lambda match: digits(match[0]).replace(".", "点"),
    ),
)
"""Versions and IP addresses."""
_RULES: tuple[Rule, ...] = (
    *chinese_signs.FIRST,
    *_DOTTED,
    *chinese_codes.RULES,
    *chinese_arithmetic.SCORES,
    *chinese_calendar.RULES,
    *chinese_arithmetic.RULES,
    *chinese_quantities.RULES,
)
_NUMERIC = re.compile("第[IVX]|[IVX]{2}|I[期级型类]|[0-9①-⑳⓪¼-¾⅓-⅞Ⅰ-Ⅻ₀-₉]|\\.[a-z]")
_SIGNED = re.compile("[-#*@&+=<>≥≤≠±≈~～×÷%℃℉№–—]")


def rewrite(text: str) -> str:
    """`text` with its numbers and signs as words."""
    text = text.translate(chinese_signs.WIDE)
    if _NUMERIC.search(text):
        text = apply_rules(_RULES, text)
    return apply_rules(chinese_signs.LAST, text) if _SIGNED.search(text) else text
