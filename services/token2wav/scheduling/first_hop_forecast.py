"""When the tokens of first hops are expected, so that no step that can wait begins just before.

A step under way is not interrupted: a first hop whose tokens come a moment after it began waits for
its end. A player with a second of sound left hears no gap if its step waits for that first hop.
"""

from collections import deque
from collections.abc import Iterable
from statistics import median

from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.stream_slot import StreamSlot

AMPLE_SECONDS = 0.3
"""Sound that every player has to have left behind the step that waits: more than two steps of the
longest kind, and the way to the player.
"""
OVERDUE_SECONDS = 0.01
"""For so long tokens are awaited beyond the moment at which they were expected."""
_REMEMBERED = 32


class FirstHopForecast:
    """Guarded by the batcher's lock; moments and seconds of its clock."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)
        self._typical: float | None = None

    def came(self, slot: StreamSlot, now: float) -> None:
        """The tokens of its next hop are complete: of its first one, if none was begun."""
        if _begins(slot):
            self._seen.append(now - slot.opened_at)
            self._typical = median(self._seen)

    def wait(self, slots: Iterable[StreamSlot], step_seconds: float, now: float) -> float | None:
        """Seconds for which a step of `step_seconds` should wait, at most; None if no first hop is
        expected before its end.
        """
        if self._typical is None:
            return None
        expected = [slot.opened_at + self._typical for slot in slots if _awaits_first_hop(slot)]
        soon = [at for at in expected if at - step_seconds <= now < at + OVERDUE_SECONDS]
        return max(soon) + OVERDUE_SECONDS - now if soon else None


def _begins(slot: StreamSlot) -> bool:
    """Whether its listener has heard nothing yet. The tokens of a later sentence may be there when
    it is opened.
    """
    return (
        slot.hop is None
        and not slot.is_playing
        and not slot.is_heard
        and slot.follows is None
        and slot.sentence.profile is Profile.CONTINUOUS
    )


def _awaits_first_hop(slot: StreamSlot) -> bool:
    return _begins(slot) and not slot.cancelled and slot.missing_tokens() > 0
