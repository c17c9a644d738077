"""The series of a metric that are known before anything happens. They are there from the start, at
0: the increase of a counter that appears with its first event cannot be seen.
"""

from itertools import product

from cosyserve.errors import SPEECH_FAULTS
from cosyserve.metrics import names
from cosyserve.metrics.names import Metric

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


def known_series(metric: Metric, service: str) -> list[dict[str, str]]:
    """The labels of each; none for a metric with a label whose values are not known, such as the
    key of a caller.
    """
    values = _VALUES | {"method": names.METHODS.get(service, ()), "cache": names.CACHES.get(service, ())}
    values |= {"queue": names.DEADLINE_QUEUES.get(service, ())}
    known = product(*(values.get(label, ()) for label in metric.labels))
    return [dict(zip(metric.labels, one, strict=True)) for one in known]
