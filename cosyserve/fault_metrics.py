"""The metrics of what is done about faults: their names, units, labels and meaning.

Counters count up in any thread. A gauge is read when the metrics are exported, from the objects
that know its value.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from opentelemetry.metrics import CallbackOptions, Observation

from cosyserve.telemetry import meter

Owner = TypeVar("Owner", bound=object)
Reading = Iterable[tuple[Mapping[str, str], float]]
"""Values with their labels."""


class Counter:
    """name: of the metric; on a Prometheus page with underscores and `_total`."""

    def __init__(self, name: str, unit: str, description: str) -> None:
        self._counter = meter.create_counter(name, unit, description)

    def add(self, amount: float = 1, **labels: str) -> None:
        self._counter.add(amount, labels)


class Gauge:
    """together: how the values of equal labels of several owners become one."""

    def __init__(self, name: str, unit: str, description: str, together: Callable[[list[float]], float] = sum) -> None:
        self._owners: weakref.WeakKeyDictionary[Any, Callable[[Any], Reading]] = weakref.WeakKeyDictionary()
        self._together = together
        meter.create_observable_gauge(name, [self.observe], unit, description)

    def watch(self, owner: Owner, read: Callable[[Owner], Reading]) -> None:
        """Read values from `owner` as long as it lives. read: must not keep it alive."""
        self._owners[owner] = read

    def forget(self, owner: object) -> None:
        """`owner` is over."""
        self._owners.pop(owner, None)

    def observe(self, _: CallbackOptions | None = None) -> list[Observation]:
        """The values now."""
        values: dict[frozenset[tuple[str, str]], list[float]] = {}
        for owner, read in list(self._owners.items()):
            for labels, value in read(owner):
                values.setdefault(frozenset(labels.items()), []).append(value)
        return [Observation(self._together(each), dict(labels)) for labels, each in values.items()]


RETRY_BUDGET = Gauge("cosyserve.retry_budget", "1", "Share of the retries of a stage that is left, by stage", min)
RETRIES_REFUSED = Counter("cosyserve.retries.refused", "{retry}", "Retries that the budget did not allow, by stage")
BREAKER_OPEN = Gauge("cosyserve.breaker.open", "{replica}", "Replicas that get no calls, or a probe, by stage")
HEDGES = Counter("cosyserve.hedges", "{call}", "Calls sent to a second replica, by stage, method and winner")
BROWNOUT_ACTIVE = Gauge("cosyserve.brownout.active", "{request}", "Requests under way that began near the limit")
DEADLINE_DROPPED = Counter(
    "cosyserve.deadline.dropped", "{call}", "Calls dropped because their deadline passed, or surely would, by queue"
)
QUARANTINED = Counter(
    "cosyserve.quarantined", "{request}", "Requests put into quarantine, or refused there, by event (placed, refused)"
)
