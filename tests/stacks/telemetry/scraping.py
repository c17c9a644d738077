"""Metrics as a scraper reads them: of this process, and of the services of a stack, by the parsers
of Prometheus's own client.
"""

import contextlib
import urllib.request
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cosyserve.host.supervision.layout import free_ports
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from cosyserve.metrics import names
from cosyserve.metrics.exposition import exposition
from cosyserve.metrics.names import Metric as Name
from cosyserve.metrics.scrape_reader import ScrapeReader

OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"


@dataclass(frozen=True)
class Scrape:
    """One answer, parsed."""

    families: tuple[Metric, ...]

    @classmethod
    def parsed(cls, text: str, *, open_metrics: bool = False) -> "Scrape":
        parse = openmetrics.text_string_to_metric_families if open_metrics else text_string_to_metric_families
        return cls(tuple(parse(text)))

    @property
    def samples(self) -> list[Sample]:
        return [sample for family in self.families for sample in family.samples]

    def of(self, name: str, **labels: str) -> float:
        """The sum of the series of this name that have these labels; 0 without any."""
        wanted = labels.items()
        return sum(sample.value for sample in self.samples if sample.name == name and wanted <= sample.labels.items())

    def count(self, metric: Name, **labels: str) -> float:
        """Of a counter or a gauge its value, of a histogram how many values it has."""
        return self.of(f"{metric.prometheus}_count" if metric.borders else metric.prometheus, **labels)


class Reader:
    """Reads what this process counts, whichever service counts it."""

    def __init__(self) -> None:
        self._reader = ScrapeReader("")
        provider = metrics.get_meter_provider()
        if isinstance(provider, MeterProvider):
            provider.add_metric_reader(self._reader)
        else:
            metrics.set_meter_provider(MeterProvider([self._reader]))

    def scrape(self, service: str, *, open_metrics: bool = False) -> Scrape:
        """What a service of this process would answer."""
        return Scrape.parsed(self.text(service, open_metrics=open_metrics), open_metrics=open_metrics)

    def text(self, service: str, *, open_metrics: bool = False) -> str:
        """The same as it is sent."""
        self._reader.service = service
        return exposition(self._reader.families(), service, open_metrics=open_metrics).decode()


_READERS: list[Reader] = []


def reader() -> Reader:
    """The one of this process: a provider of metrics is set once."""
    if not _READERS:
        _READERS.append(Reader())
    return _READERS[0]


@dataclass(frozen=True)
class ScrapedStack:
    """A stack of processes and the ports of their metrics."""

    stack: LocalDeployment
    ports: Mapping[str, int]

    def scrape(self, service: str, accept: str = "") -> Scrape:
        """What the service answers now."""
        return Scrape.parsed(self.text(service, accept), open_metrics=bool(accept))

    def text(self, service: str, accept: str = "") -> str:
        address = f"http://127.0.0.1:{self.ports[service]}/metrics"
        request = urllib.request.Request(address, headers={"accept": accept} if accept else {})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read().decode()


@contextlib.asynccontextmanager
async def scraped_stack(
    model: Path, environ: Mapping[str, str] | None = None, **options: object
) -> AsyncIterator[ScrapedStack]:
    """All services as processes, gateway included, each with its metrics on a port of its own."""
    ports = dict(zip(names.SERVICES, free_ports(len(names.SERVICES)), strict=True))
    listen = {f"COSYSERVE_{service.upper()}_HEALTH_LISTEN": f"127.0.0.1:{port}" for service, port in ports.items()}
    options = {"http": "127.0.0.1:0", **options}
    async with local_deployment(model, environ={**listen, **(environ or {})}, **options) as stack:  # type: ignore[arg-type]
        yield ScrapedStack(stack, ports)
