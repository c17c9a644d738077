"""Reads all metrics at the moment at which a scraper asks for them."""

import threading
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics.export import Gauge, Histogram, HistogramDataPoint, MetricReader, MetricsData, Sum
from opentelemetry.trace import format_span_id, format_trace_id

from cosyserve.metrics import names
from cosyserve.metrics.exposition import Buckets, Exemplar, Family, Labels
from cosyserve.metrics.instruments import known_series
from cosyserve.metrics.names import Kind, Metric

_BY_NAME = {metric.name: metric for metric in names.ALL}
_Key = tuple[str, Labels]


class ScrapeReader(MetricReader):
    """service: whose metrics are read; those of no other service are in an answer. The latest
    exemplar of each bucket is kept, so that every one of several readers sees it.
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        self.service = service
        self._lock = threading.Lock()
        self._data: MetricsData | None = None
        self._exemplars: dict[_Key, dict[int, Exemplar]] = {}

    def families(self) -> list[Family]:
        """Every metric that the service has, in the order of `names`; blocks for some
        milliseconds.
        """
        with self._lock:
            self._data = None
            self.collect()
            found: dict[str, Family] = {} if self._data is None else self._read(self._data)
        own = [found.get(metric.name, Family(metric)) for metric in names.ALL if self.service in metric.services]
        return [self._from_the_start(family) if family.metric.borders else family for family in own]

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any) -> None:
        self._data = metrics_data

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """There is nothing to send."""

    def _read(self, data: MetricsData) -> dict[str, Family]:
        found: dict[str, Family] = {}
        for scope in (scope for resource in data.resource_metrics for scope in resource.scope_metrics):
            for read in scope.metrics:
                if (metric := _BY_NAME.get(read.name)) is None:
                    continue
                points = read.data
                if isinstance(points, Histogram) and metric.kind is Kind.HISTOGRAM:
                    found[read.name] = Family(
                        metric, histograms=[self._buckets(metric, point) for point in points.data_points]
                    )
                elif isinstance(points, Sum | Gauge):
                    found[read.name] = Family(
                        metric,
                        [(_labels(metric, point.attributes), float(point.value)) for point in points.data_points],
                    )
        return found

    def _from_the_start(self, family: Family) -> Family:
        """With its known series that have no value yet."""
        metric, empty = family.metric, Buckets((0,) * (len(family.metric.borders) + 1), 0.0)
        series = {_labels(metric, labels): empty for labels in known_series(metric, self.service)}
        return replace(family, histograms=list((series | dict(family.histograms)).items()))

    def _buckets(self, metric: Metric, point: HistogramDataPoint) -> tuple[Labels, Buckets]:
        labels = _labels(metric, point.attributes)
        kept = self._exemplars.setdefault((metric.name, labels), {})
        for one in point.exemplars:
            if one.trace_id is None or one.span_id is None:
                continue
            place = next(
                (place for place, border in enumerate(metric.borders) if one.value <= border), len(metric.borders)
            )
            kept[place] = Exemplar(
                format_trace_id(one.trace_id), format_span_id(one.span_id), one.value, one.time_unix_nano / 1e9
            )
        return labels, Buckets(point.bucket_counts, point.sum, dict(kept))


def _labels(metric: Metric, attributes: Any) -> Labels:
    """In the order of the metric; the SDK's mark of an overflow goes into the first one."""
    given = dict(attributes or {})
    if given.get("otel.metric.overflow"):
        return tuple((name, "overflow") for name in metric.labels)
    return tuple((name, str(given[name])) for name in metric.labels if name in given)
