"""What the metrics of faults say, as a reader of OpenTelemetry sees them."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from cosyserve import fault_metrics
from cosyserve.fault_metrics import Counter, Gauge


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    reading = InMemoryMetricReader()
    provider = MeterProvider([reading])
    monkeypatch.setattr(fault_metrics, "meter", provider.get_meter("test"))
    yield reading
    provider.shutdown()


def values(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float]]]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: [(dict(point.attributes or {}), point.value) for point in metric.data.data_points]  # type: ignore[union-attr]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


class Owner:
    def __init__(self, value: float) -> None:
        self.value = value


def test_a_gauge_is_read_from_its_owners_while_they_live(reader: InMemoryMetricReader) -> None:
    gauge = Gauge("some.gauge", "1", "For this test", min)
    first, second = Owner(0.5), Owner(0.25)
    for owner in (first, second):
        gauge.watch(owner, lambda one: [({"stage": "llm"}, one.value)])
    assert values(reader)["some.gauge"] == [({"stage": "llm"}, 0.25)]
    del second, owner
    first.value = 0.75
    assert values(reader)["some.gauge"] == [({"stage": "llm"}, 0.75)]


def test_a_counter_counts_by_its_labels(reader: InMemoryMetricReader) -> None:
    counter = Counter("some.counter", "{call}", "For this test")
    counter.add(stage="llm")
    counter.add(2, stage="llm")
    counter.add(stage="frontend")
    assert sorted(values(reader)["some.counter"], key=lambda series: series[1]) == [
        ({"stage": "frontend"}, 1),
        ({"stage": "llm"}, 3),
    ]
