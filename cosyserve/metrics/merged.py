"""The metrics of several processes of one service as those of the service: counters and histograms
added up, gauges put together as several owners in one process are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from cosyserve.metrics import names
from cosyserve.metrics.exposition import Buckets, Exemplar, Family, Labels
from cosyserve.metrics.instruments import together
from cosyserve.metrics.names import Kind

_BY_NAME = {metric.name: metric for metric in names.ALL}


def merged(of_processes: Iterable[Sequence[Family]]) -> list[Family]:
    """One family for each metric, in the order of `names`. Of the exemplars of a bucket the latest
    is kept.
    """
    numbers: dict[str, dict[Labels, list[float]]] = {}
    histograms: dict[str, dict[Labels, Buckets]] = {}
    for families in of_processes:
        for family in families:
            name = family.metric.name
            series = numbers.setdefault(name, {})
            for labels, value in family.numbers:
                series.setdefault(labels, []).append(value)
            added = histograms.setdefault(name, {})
            for labels, buckets in family.histograms:
                added[labels] = _sum(added[labels], buckets) if labels in added else buckets
    found = [metric for metric in names.ALL if metric.name in numbers]
    return [
        Family(
            metric,
            [
                (labels, (sum if metric.kind is Kind.COUNTER else together(metric))(values))
                for labels, values in numbers[metric.name].items()
            ],
            list(histograms[metric.name].items()),
        )
        for metric in found
    ]


def counted(families: Iterable[Family]) -> list[Family]:
    """What stays counted when the process has ended: all but the gauges."""
    return [family for family in families if family.metric.kind is not Kind.GAUGE]


def to_json(families: Iterable[Family]) -> list[Any]:
    """As values for JSON."""
    return [
        {
            "name": family.metric.name,
            "numbers": [[labels, value] for labels, value in family.numbers],
            "histograms": [
                [labels, list(each.counts), each.total, {at: asdict(one) for at, one in each.exemplars.items()}]
                for labels, each in family.histograms
            ],
        }
        for family in families
    ]


def from_json(values: Iterable[Any]) -> list[Family]:
    """What `to_json` made, after its way through JSON. A metric that is not known is left out."""
    return [
        Family(
            _BY_NAME[one["name"]],
            [(_labels(labels), value) for labels, value in one["numbers"]],
            [
                (_labels(labels), Buckets(counts, total, {int(at): Exemplar(**each) for at, each in exemplars.items()}))
                for labels, counts, total, exemplars in one["histograms"]
            ],
        )
        for one in values
        if one["name"] in _BY_NAME
    ]


def _labels(pairs: Sequence[Sequence[str]]) -> Labels:
    return tuple((name, value) for name, value in pairs)


def _sum(one: Buckets, other: Buckets) -> Buckets:
    exemplars = dict(one.exemplars)
    for at, exemplar in other.exemplars.items():
        if at not in exemplars or exemplars[at].seconds <= exemplar.seconds:
            exemplars[at] = exemplar
    counts = [mine + theirs for mine, theirs in zip(one.counts, other.counts, strict=True)]
    return Buckets(counts, one.total + other.total, exemplars)
