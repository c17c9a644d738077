"""What speech costs an engine, measured while it serves: how many streams it could speak in real
time, and whether it was in time.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_SECONDS = 30.0
"""Of speech, or of work where that is more, the latest: enough for a mean, and forgotten within
seconds of work when the load changes.
"""


@dataclass(frozen=True)
class Load:
    """real_time_factor: seconds of work for a second of speech, more than 0. pieces: handed out
    since the start to listeners who were playing. late_pieces: those of them that the engine made
    too late."""

    real_time_factor: float
    pieces: int = 0
    late_pieces: int = 0


class EngineLoad:
    """Of one engine. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worked: deque[tuple[float, float]] = deque()
        self._busy = self._speech = 0.0
        self._pieces = self._late = 0

    def worked(self, busy_seconds: float, speech_seconds: float) -> None:
        """The engine worked so long for streams that are spoken and made so much speech, possibly
        none. Work for callers who hung up before any speech is left out: it is not the cost of a
        stream that is spoken, and a caller who hangs up often would lower the limit for all."""
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
        """A piece of sound for a listener who plays already; late: the player ran dry though the
        engine could have made it in time.
        """
        with self._lock:
            self._pieces, self._late = self._pieces + 1, self._late + late

    def forget(self) -> None:
        """What was measured says nothing about what follows, as of an engine that was not warm."""
        with self._lock:
            self._worked.clear()
            self._busy = self._speech = 0.0

    @property
    def now(self) -> Load | None:
        """None before any speech was made."""
        with self._lock:
            if self._speech <= 0 or self._busy <= 0:
                return None
            return Load(self._busy / self._speech, self._pieces, self._late)


class Work:
    """One piece of work of a BusyMeter. spoke: whether it has made speech. waiting_seconds: busy
    since it came and before the next one did, which count as soon as it, or an older one, makes
    speech."""

    spoke = False
    waiting_seconds = 0.0


class BusyMeter:
    """Tells an EngineLoad how long an engine worked that takes what it is given at once: the time
    in which at least one piece of work is in that makes speech, be it later. Time in which there
    are only pieces that end without any is left out. For one thread. now: seconds that only grow.
    """

    def __init__(self, load: EngineLoad, now: Callable[[], float]) -> None:
        self._load, self._now = load, now
        self._open: list[Work] = []
        """Oldest first."""
        self._since = 0.0

    def begins(self) -> Work:
        """One more piece of work is in."""
        self._count(0.0)
        self._open.append(work := Work())
        return work

    def made(self, work: Work, speech_seconds: float) -> None:
        """It has made so much speech."""
        work.spoke = work.spoke or speech_seconds > 0
        self._count(speech_seconds)

    def ends(self, work: Work) -> None:
        """It is over."""
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
            # It was in all the time since it came, so what younger ones wait with is its time, too.
            waited = 0.0
            for work in self._open[first:]:
                waited, work.waiting_seconds = waited + work.waiting_seconds, 0.0
            self._load.worked(passed + waited, speech_seconds)
        elif self._open:
            self._open[-1].waiting_seconds += passed
