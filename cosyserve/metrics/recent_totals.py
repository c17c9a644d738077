"""Totals by labels of which there may be any number, such as API keys: those that were used last
are kept, and read when the metrics are.
"""

import threading
from collections import OrderedDict

from cosyserve.metrics.instruments import Labels, observed_counter
from cosyserve.metrics.names import Metric

MOST_SERIES = 1_000


class RecentTotals:
    """A counter of at most `most` sets of labels. What was counted for one that was dropped is in
    no sum any more; when it comes back, it begins at 0, which a reader takes for a restart.
    """

    def __init__(self, metric: Metric, most: int = MOST_SERIES) -> None:
        self._labels, self._most = metric.labels, most
        self._lock = threading.Lock()
        self._totals: OrderedDict[tuple[str, ...], float] = OrderedDict()
        observed_counter(metric).watch(self, RecentTotals.read)

    def add(self, amount: float, **labels: str) -> None:
        """May be called in any thread. labels: all of the metric."""
        key = tuple(labels[name] for name in self._labels)
        with self._lock:
            self._totals[key] = self._totals.get(key, 0.0) + amount
            self._totals.move_to_end(key)
            if len(self._totals) > self._most:
                self._totals.popitem(last=False)

    def read(self) -> list[tuple[Labels, float]]:
        """Every total, with its labels."""
        with self._lock:
            kept = list(self._totals.items())
        return [(dict(zip(self._labels, key, strict=True)), total) for key, total in kept]
