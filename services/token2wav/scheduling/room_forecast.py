"""When a stream that is refused for want of room may come again: estimated from how long the latest
streams took, like the hint of the orchestrator's places.
"""

import math
from collections.abc import Sequence

from services.token2wav.inputs.request import Sentence

SHORTEST_SECONDS, LONGEST_SECONDS = 0.2, 30.0
"""Of a hint; a later time cannot be predicted."""
_FIRST_GUESS = 1.0
"""Seconds of a stream while none was complete."""
_NEW_SHARE = 0.1
"""Weight of the latest stream in the mean."""
_OVERDUE_SHARE = 0.25
"""A stream that takes longer than expected is assumed to need this share of its elapsed time again.
"""
_RESERVED_SECONDS = 0.5
"""How long a promise counts after the time in its hint."""
_MOST_PROMISES = 256


class RoomForecast:
    """Seconds of one clock. Guarded by the batcher's lock."""

    def __init__(self) -> None:
        self._usual: float | None = None
        self._promised: dict[object, float] = {}
        """By utterance, when those who were refused may come again: each needs room of its own."""

    def opened(self, utterance: int | None = 0) -> None:
        """A stream was admitted, perhaps one that was refused before. utterance: as in `seconds`;
        of another number than any that was refused, it takes the place of the first of those.
        """
        if utterance is not None and self._promised:
            earliest = min(self._promised, key=self._promised.__getitem__)
            del self._promised[utterance if utterance in self._promised else earliest]

    def complete(self, seconds: float) -> None:
        """A stream was open for so long, up to the end of its sentence."""
        before = self._usual
        self._usual = seconds if before is None else before + _NEW_SHARE * (seconds - before)

    def seconds(
        self,
        held: Sequence[tuple[float, float]],
        missing: float,
        needed: float,
        now: float,
        utterance: int | None = 0,
    ) -> float:
        """Until the streams that hold the room are expected to have left what one more lacks, after
        those that were refused before. held: of each stream, when it was opened and how much it
        holds. missing: how much has to become free for one stream, needed: how much that one takes,
        in the same unit. utterance: who is promised room, as `promised_to` says; what the same one
        was promised before is void.
        """
        self._promised = {
            who: moment
            for who, moment in self._promised.items()
            if moment + _RESERVED_SECONDS > now and who != utterance
        }
        missing += needed * len(self._promised)
        wait = min(max(self._until_free(held, missing, now), SHORTEST_SECONDS), LONGEST_SECONDS)
        if utterance is not None and len(self._promised) < _MOST_PROMISES:
            self._promised[utterance or object()] = now + wait
        return wait

    def _until_free(self, held: Sequence[tuple[float, float]], missing: float, now: float) -> float:
        usual = _FIRST_GUESS if self._usual is None else self._usual
        whole = sum(amount for _, amount in held)
        if not whole:
            return usual
        # Where more is missing than all hold, those who come next have to end too.
        rounds = max(math.ceil(missing / whole) - 1, 0)
        missing -= rounds * whole
        left = sorted((max(usual - (now - at), _OVERDUE_SHARE * (now - at)), amount) for at, amount in held)
        for seconds, amount in left:
            missing -= amount
            if missing <= 0:
                return seconds + rounds * usual
        return left[-1][0] + rounds * usual


def promised_to(sentence: Sentence) -> int | None:
    """Which utterance room is promised to when this sentence is refused; 0: one whose number is not
    known. None: no room is promised, because a listener hears the utterance already: its caller
    asks again before the time in its hint.
    """
    return None if sentence.is_continued else sentence.utterance
