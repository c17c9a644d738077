"""How a metric of `names` is counted: one instrument for each, made when it is first asked for.

The instruments are those of OpenTelemetry's API; they record nothing until `provider.start` found
a reader of them. A gauge is read when a reader asks, from the object that knows the value,
so that it can never be out of step with it.
"""

import asyncio
import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, TypeVar

from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation

from cosyserve.errors import SPEECH_FAULTS
from cosyserve.metrics import names
from cosyserve.metrics.names import Metric

Owner = TypeVar("Owner", bound=object)
Labels = Mapping[str, str]
Reading = float | Iterable[tuple[Labels, float]]
"""A value, or several with their labels."""
_TOGETHER: dict[str, Callable[[list[float]], float]] = {
    names.QUEUE_AGE.name: max,
    names.TOKEN2WAV_SLACK.name: min,
    names.RETRY_BUDGET.name: min,
    names.CERTIFICATE_EXPIRY.name: min,
    names.CERTIFICATE_BEGIN.name: min,
}
"""Where several owners of a gauge are not added up."""
_meter = metrics.get_meter("cosyserve")
MOST_SERIES = 1_000
_VALUES: dict[str, tuple[str, ...]] = {
    "term": names.TERMS,
    "limit": names.LIMITS,
    "guard": tuple(sorted(SPEECH_FAULTS)),
    "outcome": names.OUTCOMES,
    "stage": names.STAGES,
    "result": names.RESULTS,
    "status": names.FREQUENT_STATUSES,
    "call": names.HEDGED,
    "winner": ("first", "second"),
    "event": ("placed", "refused"),
}


class Counter:
    """Counts up."""

    def __init__(self, metric: Metric) -> None:
        self._counter = _meter.create_counter(metric.name, metric.unit, metric.description)

    def add(self, amount: float = 1, **labels: str) -> None:
        """May be called in any thread."""
        self._counter.add(amount, labels)


class Histogram:
    """Counts values by bucket."""

    def __init__(self, metric: Metric) -> None:
        self._histogram = _meter.create_histogram(
            metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.borders
        )

    def record(self, value: float, context: Context | None = None, **labels: str) -> None:
        """May be called in any thread. context: of the trace that an exemplar names; None: the
        current one.
        """
        self._histogram.record(value, labels, context)


class Observed:
    """A gauge, or a counter whose values are kept elsewhere. With several owners in one process
    the values of equal labels are put together by `together`.
    """

    def __init__(self, metric: Metric, together: Callable[[list[float]], float], *, counts: bool) -> None:
        self._owners: weakref.WeakKeyDictionary[Any, Callable[[Any], Reading]] = weakref.WeakKeyDictionary()
        self._together = together
        create = _meter.create_observable_counter if counts else _meter.create_observable_gauge
        create(metric.name, [self._observe], metric.unit, metric.description)

    def watch(self, owner: Owner, read: Callable[[Owner], Reading]) -> None:
        """Read the value from `owner` as long as it lives. read: called in a thread of its own; it
        must not keep `owner` alive.
        """
        self._owners[owner] = read

    def forget(self, owner: object) -> None:
        """`owner` is over; its values end."""
        self._owners.pop(owner, None)

    def _observe(self, _: CallbackOptions) -> list[Observation]:
        values: dict[frozenset[tuple[str, str]], list[float]] = {}
        for owner, read in list(self._owners.items()):
            reading = read(owner)
            for labels, value in [({}, reading)] if isinstance(reading, int | float) else list(reading):
                values.setdefault(frozenset(labels.items()), []).append(value)
        return [Observation(self._together(each), dict(labels)) for labels, each in values.items()]


@functools.cache
def counter(metric: Metric) -> Counter:
    """The counter of a metric of `names`."""
    return Counter(metric)


@functools.cache
def histogram(metric: Metric) -> Histogram:
    """The histogram of a metric of `names`."""
    return Histogram(metric)


def together(metric: Metric) -> Callable[[list[float]], float]:
    """How the values of several owners are put together."""
    return _TOGETHER.get(metric.name, sum)


@functools.cache
def gauge(metric: Metric) -> Observed:
    """The gauge of a metric of `names`."""
    return Observed(metric, together(metric), counts=False)


@functools.cache
def observed_counter(metric: Metric) -> Observed:
    """The counter of a metric of `names` whose values are kept elsewhere."""
    return Observed(metric, sum, counts=True)


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


def known_series(metric: Metric, service: str) -> list[dict[str, str]]:
    """The labels of each; none for a metric with a label whose values are not known, such as the
    key of a caller.
    """
    values = _VALUES | {"method": names.METHODS.get(service, ()), "cache": names.CACHES.get(service, ())}
    values |= {"queue": names.DEADLINE_QUEUES.get(service, ())}
    known = product(*(values.get(label, ()) for label in metric.labels))
    return [dict(zip(metric.labels, one, strict=True)) for one in known]


def watch_tasks() -> None:
    """Count the tasks of the running loop from now on, as long as it lives: one that is never over
    would show here.
    """
    gauge(names.TASKS).watch(asyncio.get_running_loop(), lambda loop: len(asyncio.all_tasks(loop)))
