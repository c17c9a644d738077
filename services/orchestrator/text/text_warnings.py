"""Warnings of the frontend about text that is not spoken as it is written."""

from collections.abc import Iterable
from dataclasses import dataclass

MOST_WARNINGS = 50
"""The most that one call of the frontend reports."""


@dataclass(frozen=True)
class TextWarning:
    """TextWarning of warning.proto; kind: the number of its enum."""

    kind: int
    message: str
    left_out: tuple[str, ...]
    sentence: int


class TextWarnings:
    """The warnings of one request, in order and without repeats: a frontend that takes over reports
    some again.
    """

    def __init__(self) -> None:
        self.known: list[TextWarning] = []

    def add(self, news: Iterable[TextWarning]) -> None:
        for warning in news:
            if warning not in self.known and len(self.known) < MOST_WARNINGS:
                self.known.append(warning)
