"""Metrics as text, as Prometheus and others that speak its formats read it: the text format 0.0.4
(prometheus.io/docs/instrumenting/exposition_formats) and OpenMetrics 1.0.0, which has exemplars.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from cosyserve.metrics.names import Kind, Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Exemplar:
    """One measurement of a bucket, and the trace in which it was made. seconds: since the epoch."""

    trace_id: str
    span_id: str
    value: float
    seconds: float


@dataclass(frozen=True)
class Buckets:
    """counts: of each bucket by itself, one more than there are borders."""

    counts: Sequence[int]
    total: float
    exemplars: Mapping[int, Exemplar] = field(default_factory=dict)
    """By bucket."""


@dataclass(frozen=True)
class Family:
    """A metric with its series."""

    metric: Metric
    numbers: Sequence[tuple[Labels, float]] = ()
    histograms: Sequence[tuple[Labels, Buckets]] = ()


def wants_open_metrics(accept: str) -> bool:
    """Whether the header Accept of a request prefers OpenMetrics 1.0.0 to plain text."""
    best = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for one in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in one.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        if kind == "application/openmetrics-text" and values.get("version", "1.0.0") != "1.0.0":
            continue
        if kind in best:
            best[kind] = max(best[kind], _quality(values.get("q", "1")))
    return best["application/openmetrics-text"] > 0 and best["application/openmetrics-text"] >= best["text/plain"]


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def exposition(families: Sequence[Family], service: str, *, open_metrics: bool) -> bytes:
    """Every series gets the label `service`. Families without series are named with their type, so
    that a reader sees which metrics there are.
    """
    lines: list[str] = []
    for family in families:
        lines += _head(family.metric, open_metrics=open_metrics)
        name = family.metric.prometheus
        lines += [f"{name}{_labels(labels, service)} {_number(value)}" for labels, value in sorted(family.numbers)]
        for labels, buckets in sorted(family.histograms, key=lambda series: series[0]):
            lines += _histogram(family.metric, labels, buckets, service, open_metrics=open_metrics)
    if open_metrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def _head(metric: Metric, *, open_metrics: bool) -> list[str]:
    name = metric.prometheus
    if not open_metrics:
        return [f"# HELP {name} {_help(metric)}", f"# TYPE {name} {metric.kind.value}"]
    name = name.removesuffix("_total") if metric.kind is Kind.COUNTER else name
    unit = [f"# UNIT {name} {metric.prometheus_unit}"] if metric.prometheus_unit else []
    return [f"# TYPE {name} {metric.kind.value}", *unit, f"# HELP {name} {_help(metric)}"]


def _help(metric: Metric) -> str:
    return metric.description.replace("\\", "\\\\").replace("\n", "\\n")


def _histogram(metric: Metric, labels: Labels, buckets: Buckets, service: str, *, open_metrics: bool) -> list[str]:
    name, lines = metric.prometheus, []
    borders = [*(_number(border) for border in metric.borders), "+Inf"]
    for place, (border, count) in enumerate(zip(borders, accumulate(buckets.counts), strict=True)):
        exemplar = buckets.exemplars.get(place) if open_metrics else None
        line = f"{name}_bucket{_labels((*labels, ('le', border)), service)} {count}"
        lines.append(line if exemplar is None else f"{line} {_exemplar(exemplar)}")
    own = _labels(labels, service)
    return [*lines, f"{name}_count{own} {sum(buckets.counts)}", f"{name}_sum{own} {_number(buckets.total)}"]


def _exemplar(exemplar: Exemplar) -> str:
    named = f'# {{trace_id="{exemplar.trace_id}",span_id="{exemplar.span_id}"}}'
    return f"{named} {_number(exemplar.value)} {exemplar.seconds:.3f}"


def _labels(labels: Labels, service: str) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in (("service", service), *labels))
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    """As Prometheus writes borders in OpenMetrics: always with a point, so that the series are the
    same in both formats.
    """
    return repr(float(value))
