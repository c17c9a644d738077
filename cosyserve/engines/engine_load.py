"""The load of an engine, measured while it serves: how much work a second of speech takes, and how
many pieces of sound were late.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_SECONDS = 30.0
"""The mean covers the latest seconds of speech, or of work if that is more: enough for a mean, and
short enough to follow changes of the load.
"""


@dataclass(frozen=True)
class Load:
    """Measured load of an engine."""

    real_time_factor: float
    """Seconds of work for a second of speech, more than 0."""
    pieces: int = 0
    """Pieces of sound sent to players that had started, and first sounds where streams share steps,
    since the start of the engine.
    """
    late_pieces: int = 0
    """Pieces of those that the engine produced too late."""


class EngineLoad:
    """The load of one engine. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worked: deque[tuple[float, float]] = deque()
        self._busy = self._speech = 0.0
        self._pieces = self._late = 0

    def worked(self, busy_seconds: float, speech_seconds: float) -> None:
        """Record work for streams that are spoken, and the speech that resulted, possibly none.
        Work for callers who hung up before any speech is left out: it is not the cost of a spoken
        stream, and a caller who hangs up often would lower the limit for all.
        """
        with self._lock:
            self._busy, self._speech = self._busy + busy_seconds, self._speech + speech_seconds
            if speech_seconds <= 0 and self._worked:
                busy, speech = self._worked.pop()
                self._worked.append((busy + busy_seconds, speech))
            else:
                self._worked.append((busy_seconds, speech_seconds))
            while max(self._speech - self._worked[0][1], self._busy - self._worked[0][0]) >= WINDOW_SECONDS:
                busy, speech = self._worked.popleft()
                self._busy, self._speech = self._busy - busy, self._speech - speech

    def handed_out(self, *, late: bool) -> None:
        """Record a piece of sound for a listener whose player has started, or a first sound where
        streams share steps. late: the player ran dry although the engine could have been in time,
        or the first sound came too long after its tokens.
        """
        with self._lock:
            self._pieces, self._late = self._pieces + 1, self._late + late

    def forget(self) -> None:
        """Drop the measurements, such as those of an engine that was not warm."""
        with self._lock:
            self._worked.clear()
            self._busy = self._speech = 0.0

    @property
    def now(self) -> Load | None:
        """The current load; None before any speech."""
        with self._lock:
            if self._speech <= 0 or self._busy <= 0:
                return None
            return Load(self._busy / self._speech, self._pieces, self._late)


class Work:
    """One piece of work of a BusyMeter. spoke: whether it has produced speech. waiting_seconds:
    busy time after it came and before the next one did, which counts as soon as it or an older one
    produces speech.
    """

    spoke = False
    waiting_seconds = 0.0


class BusyMeter:
    """Measures the busy time of an engine that processes several pieces of work at once, for an
    EngineLoad: the time during which at least one piece of work is running that produces speech,
    even if later. Time with only pieces that end without speech is left out. For one thread. now: a
    monotonic clock, in seconds.
    """

    def __init__(self, load: EngineLoad, now: Callable[[], float]) -> None:
        self._load, self._now = load, now
        self._open: list[Work] = []
        """Oldest first."""
        self._since = 0.0

    def begins(self) -> Work:
        """A piece of work begins."""
        self._count(0.0)
        self._open.append(work := Work())
        return work

    def made(self, work: Work, speech_seconds: float) -> None:
        """The piece of work has produced so many seconds of speech."""
        work.spoke = work.spoke or speech_seconds > 0
        self._count(speech_seconds)

    def ends(self, work: Work) -> None:
        """The piece of work ends."""
        self._count(0.0)
        at = self._open.index(work)
        if at:
            self._open[at - 1].waiting_seconds += work.waiting_seconds
        del self._open[at]

    def _count(self, speech_seconds: float) -> None:
        now = self._now()
        passed, self._since = now - self._since, now
        first = next((at for at, work in enumerate(self._open) if work.spoke), None)
        if first is not None:
            # It was running all the time since it came, so the waiting time of younger ones is its
            # busy time, too.
            waited = 0.0
            for work in self._open[first:]:
                waited, work.waiting_seconds = waited + work.waiting_seconds, 0.0
            self._load.worked(passed + waited, speech_seconds)
        elif self._open:
            self._open[-1].waiting_seconds += passed
