"""Traces, off unless an OTLP endpoint is set, metrics, and the form of log lines. A trace is one
request across all services; a line of the log has the id of the trace in which it was written, so
that the lines of one request are found by it, and it by them.

The W3C context travels in gRPC metadata. Engines know nothing of tracing: they hand out `Timing`s,
and the servicer, which knows the request, records them as spans. Of an exception a span keeps the
kind and the status, never the text: that may quote the caller.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from opentelemetry import context as otel_context
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context

from cosyserve.errors import CosyserveError
from cosyserve.metrics import provider
from cosyserve.settings import TRACE_FILE

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_LAST_SECONDS = 3.0
tracer = trace.get_tracer("cosyserve")
_FORMAT = "%(asctime)s %(levelname)s %(name)s%(trace)s: %(message)s"


@dataclass(frozen=True)
class Timing:
    """Name of the span, wall-clock start and end in nanoseconds since the epoch."""

    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, int | float | str] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6


def configure(service: str, *, scraped: bool = False) -> None:
    """Export the spans of this process by OTLP/gRPC to the endpoint set in the environment and into
    the file that COSYSERVE_TRACE_FILE names, as far as they are set, and its metrics to the
    endpoint and to those who scrape them. service: as the exports name it. scraped: whether a port
    serves the metrics. Raises SettingsError if the file cannot be written.

    Which requests are traced is decided where their trace begins (OTEL_TRACES_SAMPLER); the other
    services follow.
    """
    resource = {"service.name": service, "service.namespace": "cosyserve"}
    if any(map(os.environ.get, (*ENDPOINT_VARIABLES, TRACE_FILE))):
        _export_spans(resource)
    provider.start(service, resource, scraped=scraped)


def _export_spans(resource: dict[str, str]) -> None:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

    exporters: list[SpanExporter] = []
    if any(map(os.environ.get, ENDPOINT_VARIABLES)):
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        exporters.append(OTLPSpanExporter())
    if path := os.environ.get(TRACE_FILE):
        from cosyserve.traces.file_export import FileSpanExporter

        exporters.append(FileSpanExporter(Path(path)))
    tracers = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
    for exporter in exporters:
        tracers.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=500))
    trace.set_tracer_provider(tracers)


def shutdown(seconds: float = _LAST_SECONDS) -> None:
    """Send what is still buffered; return after so many seconds at the latest, so that a collector
    which cannot be reached holds up no restart.
    """

    def send() -> None:
        for exporting in (trace.get_tracer_provider(), metrics.get_meter_provider()):
            stop = getattr(exporting, "shutdown", None)
            if stop is not None:
                stop()

    sending = threading.Thread(target=send, name="last telemetry", daemon=True)
    sending.start()
    sending.join(seconds)


def call_span(name: str, parent: Context) -> contextlib.AbstractContextManager[trace.Span]:
    """The span of a call that is answered while the block runs; what the block raises is not
    recorded (see `failed`).
    """
    return tracer.start_as_current_span(
        name, context=parent, kind=trace.SpanKind.SERVER, record_exception=False, set_status_on_exception=False
    )


def failed(error: BaseException) -> None:
    """Mark the current span as failed: the kind of the error and, for ours, its gRPC status."""
    span = trace.get_current_span()
    span.set_status(trace.StatusCode.ERROR)
    if "error.type" not in (getattr(span, "attributes", None) or {}):
        span.set_attribute("error.type", type(error).__name__)
    if isinstance(error, CosyserveError):
        span.set_attribute("rpc.grpc.status_code", error.code.value[0])


def annotate(name: str, value: bool | int | float | str) -> None:
    """Set an attribute of the current span, which in a service is that of the call."""
    trace.get_current_span().set_attribute(name, value)


def trace_id() -> str:
    """Of the current trace, 32 hexadecimal digits; empty if there is none."""
    span = trace.get_current_span().get_span_context()
    return trace.format_trace_id(span.trace_id) if span.is_valid else ""


def incoming(metadata: Iterable[tuple[str, str | bytes]] | None) -> Context:
    """The caller's trace context from gRPC metadata."""
    return propagate.extract({key: value for key, value in metadata or () if isinstance(value, str)})


def outgoing() -> list[tuple[str, str]]:
    """gRPC metadata that carries the current trace context to the next service."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return list(carrier.items())


def record_beginning(name: str) -> None:
    """Record the time since the current span began as a span below it."""
    begin_ns = getattr(trace.get_current_span(), "start_time", None)
    if begin_ns is not None:
        record(Timing(name, begin_ns, time.time_ns()))


def record(timing: Timing, parent: Context | None = None) -> None:
    """Record finished work as a span below `parent` (default: the current span)."""
    tracer.start_span(
        timing.name,
        context=parent or otel_context.get_current(),
        start_time=timing.start_ns,
        attributes=timing.attributes,
    ).end(end_time=timing.end_ns)


class TracedFormatter(logging.Formatter):
    """`trace=` and 32 hexadecimal digits in front of the message, if there is a trace: that of the
    caller, too, where none is recorded here.
    """

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging names it
        trace = trace_id()
        record.trace = f" trace={trace}" if trace else ""
        return super().formatMessage(record)


def begin_log(level: str) -> None:
    """Log to stderr. level: name of a level of the logging module."""
    handler = logging.StreamHandler()
    handler.setFormatter(TracedFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
