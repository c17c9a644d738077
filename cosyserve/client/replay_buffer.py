"""The messages of a streaming synthesis, kept so that they can be sent again to a server that comes
back.
"""

from cosyserve.v1 import synthesis_pb2

MOST_CHARACTERS = 200_000
"""Characters kept of one stream, as many as a server accepts by default. A message without text
counts as one.
"""
Part = synthesis_pb2.StreamingSynthesizeRequest | None
"""A message after the setup; None: the end of the text."""


class MessageReplayBuffer:
    """The messages in order, counted from 0. If they exceed the limit, those that were sent are
    dropped.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._first = 0
        self._characters = 0
        self.ended = False
        """Whether the end of the text was added."""

    @property
    def whole(self) -> bool:
        """Whether everything that was written is kept."""
        return self._characters <= MOST_CHARACTERS

    def add(self, part: Part) -> int:
        """Append a part; returns the number of parts."""
        self._parts.append(part)
        self.ended = self.ended or part is None
        self._characters += max(len(part.text), 1) if part is not None else 1
        return len(self)

    def part(self, at: int) -> Part:
        """The part number `at`, which must not have been forgotten."""
        return self._parts[at - self._first]

    def passed(self, count: int) -> None:
        """So many parts have been sent."""
        if not self.whole:
            del self._parts[: count - self._first]
            self._first = count

    def __len__(self) -> int:
        return self._first + len(self._parts)
