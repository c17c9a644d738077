"""Text of one context that has arrived and was not passed on to the speech service."""

import collections
from enum import Enum

from cosyserve.errors import InvalidRequest
from cosyserve.tasks import Changes

MOST_CHARACTERS = 200_000
"""Longest text of a context, as long as the speech service takes."""
_LONGEST_PIECE = 20_000
"""Longest piece that the speech service takes at once."""


class Mark(Enum):
    """What stands between texts."""

    FLUSH = "flush"
    END = "end"


class PendingText:
    """Never holds more than MOST_CHARACTERS, nor two marks of a kind in a row."""

    def __init__(self) -> None:
        self._parts: collections.deque[str | Mark] = collections.deque()
        self._characters = 0
        self._changes = Changes()
        self.last: Mark | None = None
        """The last mark, if no text came behind it."""

    @property
    def ended(self) -> bool:
        """Whether no more text comes."""
        return self.last is Mark.END

    def add(self, text: str) -> None:
        """More text, not empty. Raises InvalidRequest if it is too much."""
        if self._characters + len(text) > MOST_CHARACTERS:
            raise InvalidRequest(f"the text of a context has more than the {MOST_CHARACTERS} characters allowed")
        self._characters += len(text)
        latest = self._parts[-1] if self._parts else None
        if isinstance(latest, str):
            self._parts[-1] = latest + text
        else:
            self._parts.append(text)
        self.last = None
        self._changes.notify()

    def mark(self, mark: Mark) -> None:
        """Have the text so far spoken now, or say that it has ended; once more changes nothing."""
        if self.last not in (mark, Mark.END):
            self._parts.append(mark)
            self.last = mark
            self._changes.notify()

    def drop(self) -> None:
        """Forget what is here, and end."""
        self._parts.clear()
        self._parts.append(Mark.END)
        self.last = Mark.END
        self._changes.notify()

    async def next(self) -> str | Mark:
        """The next piece of text or mark. Behind END there is none."""
        await self._changes.wait_for(lambda: self._parts)
        part = self._parts.popleft()
        if isinstance(part, str) and len(part) > _LONGEST_PIECE:
            self._parts.appendleft(part[_LONGEST_PIECE:])
            return part[:_LONGEST_PIECE]
        return part
