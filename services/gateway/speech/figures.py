"""What this process has spoken: counts since its start, and times of the latest requests."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping

from cosyserve.client import Speech

KEPT = 1_000
"""Latest requests whose times are kept."""


class SpeechFigures:
    """One for the whole gateway."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._requests = self._in_progress = self._complete = self._failed = self._cancelled = 0
        self._audio_seconds = 0.0
        self._first_audio: deque[float] = deque(maxlen=KEPT)
        self._factors: deque[float] = deque(maxlen=KEPT)

    @contextlib.contextmanager
    def observed(self) -> Iterator[list[Speech]]:
        """A request while the block runs; the last item of the list is the call that served it."""
        calls: list[Speech] = []
        self._requests += 1
        self._in_progress += 1
        failed = False
        try:
            yield calls
        except (GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException:
            failed = True
            raise
        finally:
            self._in_progress -= 1
            self._count(calls[-1] if calls else None, failed=failed)

    def _count(self, speech: Speech | None, *, failed: bool) -> None:
        if speech is not None and speech.first_byte_seconds is not None:
            self._first_audio.append(speech.first_byte_seconds)
        if failed:
            self._failed += 1
        elif speech is None or speech.summary is None:
            self._cancelled += 1
        else:
            self._complete += 1
            self._audio_seconds += speech.summary.audio_seconds
            self._factors.append(speech.summary.real_time_factor)

    def report(self) -> dict[str, object]:
        """Counts, seconds, and quantiles over the latest `KEPT` requests."""
        return {
            "uptime_seconds": round(time.monotonic() - self._begun, 3),
            "requests": {
                "total": self._requests,
                "in_progress": self._in_progress,
                "complete": self._complete,
                "failed": self._failed,
                "cancelled": self._cancelled,
            },
            "audio_seconds": round(self._audio_seconds, 3),
            "first_audio_seconds": _quantiles(self._first_audio),
            "real_time_factor": _quantiles(self._factors),
        }


def _quantiles(values: deque[float]) -> Mapping[str, float | int | None]:
    ordered = sorted(values)

    def at(share: float) -> float | None:
        return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 4) if ordered else None

    return {"count": len(ordered), "p50": at(0.5), "p95": at(0.95), "max": at(1.0)}
