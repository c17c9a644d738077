"""Traces: one per request, across all services, off unless an OTLP endpoint is set.

The W3C context travels in gRPC metadata. Engines know nothing of tracing: they hand out `Timing`s, and the servicer, which knows the
request, records them as spans.
"""

import os
from collections.abc import Iterable

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context

from cosyserve.timing import Timing

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
tracer = trace.get_tracer("cosyserve")


def configure(service: str) -> None:
    """Export spans of this process by OTLP/gRPC when an endpoint is set in the environment; otherwise do nothing."""
    if not any(os.environ.get(variable) for variable in ENDPOINT_VARIABLES):
        return
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service, "service.namespace": "cosyserve"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=500))
    trace.set_tracer_provider(provider)


def shutdown() -> None:
    """Send what is still buffered."""
    provider = trace.get_tracer_provider()
    stop = getattr(provider, "shutdown", None)
    if stop is not None:
        stop()


def incoming(metadata: Iterable[tuple[str, str | bytes]] | None) -> Context:
    """The caller's trace context from gRPC metadata."""
    carrier = {key: value for key, value in metadata or () if isinstance(value, str)}
    return propagate.extract(carrier)


def outgoing() -> list[tuple[str, str]]:
    """gRPC metadata that carries the current trace context to the next service."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return list(carrier.items())


def record(timing: Timing, parent: Context | None = None) -> None:
    """Record finished work as a span below `parent` (default: the current span)."""
    span = tracer.start_span(
        timing.name, context=parent or otel_context.get_current(), start_time=timing.start_ns, attributes=timing.attributes
    )
    span.end(end_time=timing.end_ns)
