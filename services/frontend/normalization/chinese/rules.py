"""What a rule for a written form is: where it applies, and how what it finds is said."""

import re
from collections.abc import Callable, Iterable

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str] | str]


def joining(written: str | None) -> str:
    """The word between the ends of a range: 至 where that is written, else 到."""
    return "至" if written and "至" in written else "到"


def applied(rules: Iterable[Rule], text: str) -> str:
    """`text` through `rules`, one after the other."""
    for pattern, spoken in rules:
        text = pattern.sub(spoken, text)
    return text
