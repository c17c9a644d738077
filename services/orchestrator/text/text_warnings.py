"""What of a request's text is not spoken as it is written, as the frontend tells it."""

from collections.abc import Iterable
from dataclasses import dataclass

MOST_WARNINGS = 50
"""As many as one call of the frontend tells."""


@dataclass(frozen=True)
class TextWarning:
    """As TextWarning of warning.proto; kind: the number of its enum."""

    kind: int
    message: str
    left_out: tuple[str, ...]
    sentence: int


class TextWarnings:
    """Of one request, in order; each once, though a frontend that takes over tells some again."""

    def __init__(self) -> None:
        self.known: list[TextWarning] = []

    def add(self, news: Iterable[TextWarning]) -> None:
        for warning in news:
            if warning not in self.known and len(self.known) < MOST_WARNINGS:
                self.known.append(warning)
