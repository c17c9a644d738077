"""A reading rule: a pattern and what is written in its place.

Every pattern is linear in the length of the text: each repetition is bounded, or its characters
cannot begin a match again behind a failure.
"""

import re
from collections.abc import Callable, Iterable

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str] | str]


def applied(rules: Iterable[Rule], text: str) -> str:
    """`text` after each of `rules` in order."""
    for pattern, spoken in rules:
        text = pattern.sub(spoken, text)
    return text


def any_of(words: Iterable[str]) -> str:
    """A pattern for any of `words`, the longest first, so that none hides another that begins with
    it.
    """
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))
