"""Warnings about text that is not spoken as it is written: collected while it is read, sent with
each message.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

MOST_WARNINGS = 50
"""Per call, including the one that reports that there are more."""
MOST_LEFT_OUT = 8
LONGEST_LEFT_OUT = 64


class Kind(enum.Enum):
    """As TextWarning.Kind of warning.proto."""

    UNREADABLE = 1
    UNSUPPORTED_MARKUP = 2
    UNUSABLE_PRONUNCIATION = 3
    MORE = 4


@dataclass(frozen=True)
class TextWarning:
    """left_out: at most MOST_LEFT_OUT spans of text of at most LONGEST_LEFT_OUT characters."""

    kind: Kind
    message: str
    """For people; contains no part of the text."""
    left_out: tuple[str, ...] = ()


_LISTED = MOST_WARNINGS - 1
_MORE = TextWarning(Kind.MORE, f"there are more than {_LISTED} warnings; the rest is not listed")


class WarningLog:
    """The warnings of one call; bounded. Within one message, warnings with the same kind and text
    are merged.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[Kind, str], list[str]] = {}
        self._reported = 0

    def add(self, kind: Kind, message: str, left_out: Iterable[str] = ()) -> None:
        """Add a warning; spans beyond the limit of a message are dropped."""
        if self._reported > _LISTED or ((kind, message) not in self._waiting and len(self._waiting) > _LISTED):
            return
        spans = self._waiting.setdefault((kind, message), [])
        for stretch in left_out:
            if len(spans) >= MOST_LEFT_OUT:
                break
            if (cut := stretch.strip()[:LONGEST_LEFT_OUT]) and cut not in spans:
                spans.append(cut)

    def take(self) -> list[TextWarning]:
        """Return and remove the warnings since the last call."""
        if not self._waiting:
            return []
        warnings = [TextWarning(kind, message, tuple(spans)) for (kind, message), spans in self._waiting.items()]
        self._waiting.clear()
        room = _LISTED - self._reported
        self._reported += len(warnings)
        return warnings if len(warnings) <= room else [*warnings[:room], _MORE]
