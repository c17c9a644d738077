"""The scheduler's clock, and what is measured with it: durations of steps, the pace of speech
tokens, and errors of forecasts. All follow the engine's current load.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock in seconds."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    def after(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Schedule `call` in `seconds`, in any thread; it must not block. Returns a function that
        cancels it.
        """

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Sleep, holding `changed`, until it is notified or `seconds` have passed; None: until it
        is notified.
        """


def sooner(one: float | None, other: float | None) -> float | None:
    """The shorter of two waits; None: without end."""
    return min((seconds for seconds in (one, other) if seconds is not None), default=None)


class MonotonicClock:
    """The system's monotonic clock."""

    def now(self) -> float:
        """As `time.monotonic`."""
        return time.monotonic()

    def after(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Run `call` in a timer thread."""
        timer = threading.Timer(seconds, call)
        timer.daemon = True
        timer.start()
        return timer.cancel

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Sleep until notified or for `seconds`."""
        changed.wait(seconds)


_REMEMBERED_STEPS = 9
"""Latest steps of each size that count: few enough to follow changes of load, and enough for a
median without outliers.
"""
_PER_DOUBLING = 1.4
"""Estimated cost ratio for twice the blocks where there is no measurement; on GPUs 1.2 was measured
for small batches, 1.6 for large ones.
"""


def bucket(blocks: int) -> int:
    """The batch size that holds `blocks` blocks: the next power of two."""
    return 1 << max(blocks - 1, 0).bit_length()


class StepCosts:
    """Seconds of steps by number of grid blocks, grouped by `bucket`.

    Estimates are asked for several times for each open stream and change only when a step is
    recorded, so that they are kept until then.
    """

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = {}
        self._latest: deque[float] = deque(maxlen=_REMEMBERED_STEPS)
        self._estimates = _Estimates()

    def add(self, blocks: int, seconds: float) -> None:
        """Record a step of `blocks` blocks that took `seconds`."""
        self._seen.setdefault(bucket(blocks), deque(maxlen=_REMEMBERED_STEPS)).append(seconds)
        self._latest.append(seconds)
        # Behind the change: what another thread still estimates from the steps before goes into the
        # object that is no longer read.
        self._estimates = _Estimates()

    @property
    def known(self) -> bool:
        """Whether any step was recorded."""
        return bool(self._latest)

    def knows(self, blocks: int) -> bool:
        """Whether a step of this size was recorded."""
        return bucket(blocks) in self._seen

    def typical(self, blocks: int) -> float:
        """Median of the latest steps of this size, estimated from neighbouring sizes if there are
        none; 0 before the first step.
        """
        size, kept = bucket(blocks), self._estimates.typical
        seconds = kept.get(size)
        if seconds is None:
            known, doublings = self._nearest(size)
            seconds = sorted(known)[len(known) // 2] * _PER_DOUBLING**doublings if known else 0.0
            kept[size] = seconds
        return seconds

    def slow(self, blocks: int) -> float:
        """An upper estimate: the longest of the latest steps of this size; without any, as if twice
        the blocks cost twice as much.
        """
        size, kept = bucket(blocks), self._estimates.slow
        seconds = kept.get(size)
        if seconds is None:
            known, doublings = self._nearest(size)
            seconds = float(max(known) * 2**doublings) if known else 0.0
            kept[size] = seconds
        return seconds

    def _nearest(self, size: int) -> tuple[list[float], int]:
        """Steps of that size or, if there are none, of the next smaller size and the number of
        doublings between them, else of the next larger size.
        """
        # Copies: the engine's thread records steps while another one estimates.
        sizes = list(self._seen)
        smaller = max((seen for seen in sizes if seen <= size), default=None)
        if smaller is not None:
            return list(self._seen[smaller]), (size // smaller).bit_length() - 1
        larger = min(sizes, default=None)
        return (list(self._seen[larger]), 0) if larger is not None else ([], 0)

    @property
    def two_more(self) -> float:
        """Upper estimate for two steps of any size: the longest plus the upper quartile of the
        latest ones; 0 before the first step.
        """
        estimates = self._estimates
        if estimates.two_more is None:
            latest = sorted(self._latest)
            estimates.two_more = latest[-1] + latest[3 * len(latest) // 4] if latest else 0.0
        return estimates.two_more


@dataclass
class _Estimates:
    """What was estimated from the steps so far. typical, slow: by size."""

    typical: dict[int, float] = field(default_factory=dict)
    slow: dict[int, float] = field(default_factory=dict)
    two_more: float | None = None


_REMEMBERED_MESSAGES = 64
_SLOWER_THAN = 0.8
"""Quantile: the share of messages that arrived at least as fast as expected."""


class TokenPace:
    """How fast speech tokens arrive, for forecasts of when a hop can be decoded: seconds per token
    over the latest messages of all streams; the first message of a stream does not count.
    """

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED_MESSAGES)
        self._expected: float | None = 0.0
        """None: not known since the last message."""

    def add(self, tokens: int, seconds: float) -> None:
        """A message of `tokens` tokens arrived `seconds` after the previous one."""
        if tokens > 0:
            self._seen.append(seconds / tokens)
            self._expected = None

    @property
    def known(self) -> bool:
        """Whether any message was recorded."""
        return bool(self._seen)

    @property
    def expected(self) -> float:
        """Seconds per token that four of five messages did not exceed; 0 before the first one."""
        if self._expected is None:
            self._expected = sorted(self._seen)[int(_SLOWER_THAN * (len(self._seen) - 1))]
        return self._expected


_REMEMBERED_ERRORS = 32
_ENOUGH = 8
"""Number of known errors from which on they alone are used."""
_CAUTION = 0.5
"""Before that, a second chunk is expected to take longer than forecast by at least this share."""


class ForecastErrors:
    """Seconds by which second chunks were later than forecast (negative: earlier), by number of
    streams: the effects of the device, of other processes on it and of the token stream are
    measured, not modelled.
    """

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = {}

    def add(self, streams: int, seconds: float) -> None:
        """Record a chunk that was `seconds` later than forecast while there were `streams`
        streams.
        """
        self._seen.setdefault(bucket(streams), deque(maxlen=_REMEMBERED_ERRORS)).append(seconds)

    def worst(self, streams: int, forecast_seconds: float) -> float:
        """By how much a chunk with this forecast may be late: the largest of the latest errors with
        about as many streams; before there are enough of them, at least a share of the forecast.
        """
        seen = self._seen.get(bucket(streams), deque[float]())
        if len(seen) >= _ENOUGH:
            return max(seen)
        return max([_CAUTION * forecast_seconds, *seen])
