"""Durations of steps by number of grid blocks, measured on this engine under its current load."""

from collections import deque

_REMEMBERED = 9
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
    """Seconds of steps, grouped by `bucket`."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = {}
        self._latest: deque[float] = deque(maxlen=_REMEMBERED)

    def add(self, blocks: int, seconds: float) -> None:
        """Record a step of `blocks` blocks that took `seconds`."""
        self._seen.setdefault(bucket(blocks), deque(maxlen=_REMEMBERED)).append(seconds)
        self._latest.append(seconds)

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
        size = bucket(blocks)
        known, doublings = self._nearest(size)
        return sorted(known)[len(known) // 2] * _PER_DOUBLING**doublings if known else 0.0

    def slow(self, blocks: int) -> float:
        """An upper estimate: the longest of the latest steps of this size; without any, as if twice
        the blocks cost twice as much.
        """
        known, doublings = self._nearest(bucket(blocks))
        return float(max(known) * 2**doublings) if known else 0.0

    def _nearest(self, size: int) -> tuple[deque[float], int]:
        """Steps of that size or, if there are none, of the next smaller size and the number of
        doublings between them, else of the next larger size.
        """
        smaller = max((seen for seen in self._seen if seen <= size), default=None)
        if smaller is not None:
            return self._seen[smaller], (size // smaller).bit_length() - 1
        larger = min(self._seen, default=None)
        return (self._seen[larger], 0) if larger is not None else (deque(), 0)

    @property
    def two_more(self) -> float:
        """Upper estimate for two steps of any size: the longest plus the upper quartile of the
        latest ones; 0 before the first step.
        """
        latest = sorted(self._latest)
        return latest[-1] + latest[3 * len(latest) // 4] if latest else 0.0
