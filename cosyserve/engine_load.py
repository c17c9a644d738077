"""What speech costs an engine, measured while it serves: how many streams it could speak in real time, and whether it was in time."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_SECONDS = 30.0
"""Of speech, the latest: enough for a mean, and forgotten within seconds of work when the load changes."""


@dataclass(frozen=True)
class Load:
    """real_time_factor: seconds of work for a second of speech, more than 0. pieces: handed out since the start to listeners who were
    playing. late_pieces: those of them that the engine made too late."""

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
        """The engine worked so long and made so much speech, possibly none."""
        with self._lock:
            self._worked.append((busy_seconds, speech_seconds))
            self._busy, self._speech = self._busy + busy_seconds, self._speech + speech_seconds
            while self._speech - self._worked[0][1] >= WINDOW_SECONDS:
                busy, speech = self._worked.popleft()
                self._busy, self._speech = self._busy - busy, self._speech - speech

    def handed_out(self, *, late: bool) -> None:
        """A piece of sound for a listener who plays already; late: the player ran dry though the engine could have made it in time."""
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


class BusyMeter:
    """Tells an EngineLoad how long an engine worked that takes what it is given at once: the time in which at least one piece of work is
    in. For one thread. now: seconds that only grow."""

    def __init__(self, load: EngineLoad, now: Callable[[], float]) -> None:
        self._load, self._now = load, now
        self._open = 0
        self._since = 0.0

    def begins(self) -> None:
        """One more piece of work is in."""
        self._count(0.0)
        self._open += 1

    def made(self, speech_seconds: float) -> None:
        """One of them has made so much speech."""
        self._count(speech_seconds)

    def ends(self) -> None:
        """One of them is over."""
        self._count(0.0)
        self._open -= 1

    def _count(self, speech_seconds: float) -> None:
        now = self._now()
        if self._open:
            self._load.worked(now - self._since, speech_seconds)
        self._since = now
