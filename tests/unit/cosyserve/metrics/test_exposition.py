"""The text that a scraper gets, read by the parsers of Prometheus's own client."""

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from cosyserve.metrics import names
from cosyserve.metrics.exposition import Buckets, Exemplar, Family, exposition, wants_open_metrics

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ODD = 'a "quoted\\ name\nof two lines'
BUCKETS = Buckets([1, 0, 2, *[0] * 16, 4], 5.5, {2: Exemplar(TRACE, SPAN, 0.015, 1700000000.25)})
FAMILIES = [
    Family(names.FIRST_BYTE, histograms=[((("method", "Synthesize"),), BUCKETS)]),
    Family(names.REQUESTS, [((("method", "Synthesize"), ("status", "OK")), 3.0)]),
    Family(names.AUDIO_SECONDS, [((("key", ODD), ("tenant", "")), 1.25)]),
    Family(names.STREAMS_ACTIVE, [((), 2.0)]),
    Family(names.GPU_MEMORY),
]


def text(*, open_metrics: bool) -> str:
    return exposition(FAMILIES, "orchestrator", open_metrics=open_metrics).decode()


@pytest.mark.parametrize("open_metrics", [False, True])
def test_both_formats_say_the_same(open_metrics: bool) -> None:
    parse = openmetrics.text_string_to_metric_families if open_metrics else text_string_to_metric_families
    families = list(parse(text(open_metrics=open_metrics)))
    assert [family.type for family in families] == ["histogram", "counter", "counter", "gauge", "gauge"]
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample for family in families for sample in family.samples
    }
    assert {sample.labels["service"] for sample in samples.values()} == {"orchestrator"}

    def value(name: str, **labels: str) -> float:
        return samples[name, *sorted({"service": "orchestrator", **labels}.items())].value

    byte = "cosyserve_first_byte_seconds"
    assert value(f"{byte}_bucket", method="Synthesize", le="0.005") == 1
    assert value(f"{byte}_bucket", method="Synthesize", le="0.02") == 3
    assert value(f"{byte}_bucket", method="Synthesize", le="10.0") == 3
    assert value(f"{byte}_bucket", method="Synthesize", le="+Inf") == 7
    assert (value(f"{byte}_count", method="Synthesize"), value(f"{byte}_sum", method="Synthesize")) == (7, 5.5)
    assert value("cosyserve_requests_total", method="Synthesize", status="OK") == 3
    assert value("cosyserve_audio_seconds_total", key=ODD, tenant="") == 1.25
    assert value("cosyserve_streams_active") == 2
    assert not [name for name, *_ in samples if name.startswith("cosyserve_gpu")], "it is named, without a value"


def test_only_openmetrics_has_exemplars() -> None:
    assert "trace_id" not in text(open_metrics=False)
    (family,) = openmetrics.text_string_to_metric_families(
        exposition(FAMILIES[:1], "orchestrator", open_metrics=True).decode()
    )
    found = [(sample.labels["le"], sample.exemplar) for sample in family.samples if sample.exemplar]
    ((border, exemplar),) = found
    assert border == "0.02"
    assert exemplar.labels == {"trace_id": TRACE, "span_id": SPAN}
    assert (exemplar.value, float(exemplar.timestamp)) == (0.015, 1700000000.25)


@pytest.mark.parametrize(
    ("accept", "open_metrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
            "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
            "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            True,
        ),
        ("application/openmetrics-text;version=0.0.1", False),
        ("text/plain, application/openmetrics-text;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
    ],
)
def test_the_scraper_chooses_the_format(accept: str, open_metrics: bool) -> None:
    assert wants_open_metrics(accept) is open_metrics
