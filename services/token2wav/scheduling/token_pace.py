"""Measures how fast speech tokens arrive, for forecasts of when a hop can be decoded."""

from collections import deque

_REMEMBERED = 64
_SLOWER_THAN = 0.8
"""Quantile: the share of messages that arrived at least as fast as expected."""


class TokenPace:
    """Seconds per token over the latest messages of all streams; the first message of a stream does
    not count.
    """

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)

    def add(self, tokens: int, seconds: float) -> None:
        """A message of `tokens` tokens arrived `seconds` after the previous one."""
        if tokens > 0:
            self._seen.append(seconds / tokens)

    @property
    def known(self) -> bool:
        """Whether any message was recorded."""
        return bool(self._seen)

    @property
    def expected(self) -> float:
        """Seconds per token that four of five messages did not exceed; 0 before the first one."""
        return sorted(self._seen)[int(_SLOWER_THAN * (len(self._seen) - 1))] if self._seen else 0.0
