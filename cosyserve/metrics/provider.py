"""Who reads the metrics of this process: a scraper that comes to its plain port, a collector to
which they are sent by OTLP, both, or none, and then nothing is counted.
"""

import os
from typing import TYPE_CHECKING

from opentelemetry import metrics

from cosyserve.metrics import names
from cosyserve.metrics.exposition import OPEN_METRICS, TEXT, exposition, wants_open_metrics
from cosyserve.metrics.gpus import Gpus, watch
from cosyserve.metrics.instruments import counter, known_series
from cosyserve.metrics.names import Kind

if TYPE_CHECKING:
    from cosyserve.metrics.scrape_reader import ScrapeReader

OTLP_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


class Scraped:
    """What the port of this process answers to a scraper; there is one for each process."""

    reader: "ScrapeReader | None" = None
    """None: metrics are not served."""
    gpus: Gpus | None = None
    """Kept, so that they are read."""


def start(service: str, resource: dict[str, str], *, scraped: bool) -> None:
    """Count from now on if there is a reader. service: one of `names.SERVICES`. resource:
    attributes of the process. scraped: whether a port serves the metrics. Once in a process.
    """
    sent = any(map(os.environ.get, OTLP_VARIABLES))
    if not (scraped or sent):
        return
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    readers: list[MetricReader] = []
    if scraped:
        from cosyserve.metrics.scrape_reader import ScrapeReader

        Scraped.reader = ScrapeReader(service)
        readers.append(Scraped.reader)
    if sent:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    metrics.set_meter_provider(MeterProvider(readers, Resource.create(resource), shutdown_on_exit=False))
    _begin_at_zero(service)
    if service in names.GPU_MEMORY.services:
        Scraped.gpus = watch()


def page(accept: str) -> tuple[str, bytes] | None:
    """Content type and body of an answer to a scraper that sends this header Accept; None if
    metrics are not served. Blocks for some milliseconds.
    """
    if Scraped.reader is None:
        return None
    open_metrics = wants_open_metrics(accept)
    body = exposition(Scraped.reader.families(), Scraped.reader.service, open_metrics=open_metrics)
    return OPEN_METRICS if open_metrics else TEXT, body


def _begin_at_zero(service: str) -> None:
    """The increase of a counter that appears with its first event cannot be seen."""
    for metric in names.ALL:
        if metric.kind is Kind.COUNTER and service in metric.services:
            for labels in known_series(metric, service):
                counter(metric).add(0, **labels)
