"""How fast speech tokens come, so that what is promised to a player can be kept."""

from collections import deque

_REMEMBERED = 64
_SLOWER_THAN = 0.8
"""Share of messages that came at least as fast as expected."""


class TokenPace:
    """Seconds from token to token, over the latest messages of all streams; the first message of a
    stream says nothing about it.
    """

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)

    def add(self, tokens: int, seconds: float) -> None:
        """A message of so many tokens came so long after the one before it."""
        if tokens > 0:
            self._seen.append(seconds / tokens)

    @property
    def known(self) -> bool:
        """Whether there was any message that says something."""
        return bool(self._seen)

    @property
    def expected(self) -> float:
        """Seconds a token, which four of five messages kept to; 0 before there is any."""
        return sorted(self._seen)[int(_SLOWER_THAN * (len(self._seen) - 1))] if self._seen else 0.0
