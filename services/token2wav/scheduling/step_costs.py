"""How long steps take, by the number of grid blocks in them: learnt from the steps of this engine,
under the load that it is in.
"""

from collections import deque

_REMEMBERED = 9
"""Steps of each size that count: few, so that a change of load shows at once, and enough for a
median without outliers.
"""
_PER_DOUBLING = 1.4
"""What twice the blocks cost where that has not been seen yet; seen on GPUs: 1.2 for small batches,
1.6 for large ones.
"""


def bucket(blocks: int) -> int:
    """The size of batch that takes so many blocks: the next power of two."""
    return 1 << max(blocks - 1, 0).bit_length()


class StepCosts:
    """Seconds of steps, grouped by `bucket`."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = {}
        self._latest: deque[float] = deque(maxlen=_REMEMBERED)

    def add(self, blocks: int, seconds: float) -> None:
        """A step of so many blocks took so long."""
        self._seen.setdefault(bucket(blocks), deque(maxlen=_REMEMBERED)).append(seconds)
        self._latest.append(seconds)

    @property
    def known(self) -> bool:
        """Whether there was any step."""
        return bool(self._latest)

    def knows(self, blocks: int) -> bool:
        """Whether there was such a step."""
        return bucket(blocks) in self._seen

    def typical(self, blocks: int) -> float:
        """The median of what such a step took lately, guessed from its neighbours in size where
        there was none; 0 before the first step.
        """
        size = bucket(blocks)
        known, doublings = self._nearest(size)
        return sorted(known)[len(known) // 2] * _PER_DOUBLING**doublings if known else 0.0

    def slow(self, blocks: int) -> float:
        """Hardly any such step takes longer: the longest of the latest ones; without any, as if
        twice the blocks cost twice as much.
        """
        known, doublings = self._nearest(bucket(blocks))
        return float(max(known) * 2**doublings) if known else 0.0

    def _nearest(self, size: int) -> tuple[deque[float], int]:
        """Steps of that size or, if there were none, of the next smaller one and how often it is to
        be doubled, else of the next larger.
        """
        smaller = max((seen for seen in self._seen if seen <= size), default=None)
        if smaller is not None:
            return self._seen[smaller], (size // smaller).bit_length() - 1
        larger = min(self._seen, default=None)
        return (self._seen[larger], 0) if larger is not None else (deque(), 0)

    @property
    def two_more(self) -> float:
        """What two steps may take now, whatever their sizes: the longest and the upper quartile of
        the latest ones; 0 before the first.
        """
        latest = sorted(self._latest)
        return latest[-1] + latest[3 * len(latest) // 4] if latest else 0.0
