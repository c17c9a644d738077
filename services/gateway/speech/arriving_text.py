"""The text of one utterance on its way from the caller to the speech service."""

import collections
from collections.abc import AsyncGenerator

from cosyserve.errors import InvalidRequest
from cosyserve.tasks import Changes

MOST_CHARACTERS = 200_000
"""Of one utterance, as many as the speech service accepts by default."""


class ArrivingText:
    """One task adds text, another one reads it. What is added waits here while the speech service
    takes none; that is bounded by the length of an utterance.
    """

    def __init__(self) -> None:
        self._pieces: collections.deque[str] = collections.deque()
        self.characters = 0
        """Length of what was added."""
        self._worded = self._ended = False
        self._changes = Changes()

    def add(self, text: str) -> None:
        """The next piece; an empty one is a sign of life. Raises InvalidRequest if the utterance
        becomes too long.
        """
        self.characters += len(text)
        if self.characters > MOST_CHARACTERS:
            raise InvalidRequest(f"an utterance has more than the {MOST_CHARACTERS} characters allowed")
        self._worded = self._worded or bool(text.strip())
        if not text and self._pieces:
            return
        self._pieces.append(text)
        self._changes.notify()

    def end(self) -> None:
        """No more text comes."""
        self._ended = True
        self._changes.notify()

    async def worded(self) -> bool:
        """Returns True as soon as there is anything but blanks, False when the text has ended
        without.
        """
        await self._changes.wait_for(lambda: self._worded or self._ended)
        return self._worded

    async def fragments(self) -> AsyncGenerator[str]:
        """The text in the pieces in which it was added, to its end. To be read once."""
        while True:
            await self._changes.wait_for(lambda: self._pieces or self._ended)
            while self._pieces:
                yield self._pieces.popleft()
            if self._ended:
                return
