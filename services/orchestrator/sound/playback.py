"""Estimates how much sound the listener of a request still has to play, so that the stages know
when the next sound is due.
"""

import secrets
import time
from collections.abc import Callable

_UTTERANCE_BITS = 63


class PlaybackClock:
    """A simulated player: it starts with the first sound and waits when it has run dry. now: a
    monotonic clock, in seconds.

    utterance: a random number that lets token2wav recognise sentences played one after another.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.utterance = secrets.randbits(_UTTERANCE_BITS) or 1
        self._now = now
        self._until = 0.0

    def sent(self, seconds: float) -> None:
        """So many seconds of sound were sent."""
        self._until = max(self._until, self._now()) + seconds

    @property
    def left(self) -> float:
        """Seconds left to play; 0 before the first sound and when the player has run dry."""
        return max(self._until - self._now(), 0.0)
