"""A reading rule: a pattern for a written form, and the words or the function that replaces it.

Every pattern is linear in the length of the text: each repetition is bounded, or its characters
cannot begin another match after a failure.
"""

import re
from collections.abc import Callable, Iterable

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str] | str]


def apply_rules(rules: Iterable[Rule], text: str) -> str:
    """Return `text` after each of `rules` was applied in order."""
    for pattern, spoken in rules:
        text = pattern.sub(spoken, text)
    return text


def any_of(words: Iterable[str]) -> str:
    """Return a pattern for any of `words`, the longest first: a word never hides a longer one that
    begins with it.
    """
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))
