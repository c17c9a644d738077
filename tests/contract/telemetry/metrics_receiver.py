"""What an OpenTelemetry collector does with metrics: takes them. Here it adds them up."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc

Labels = frozenset[tuple[str, str]]


class MetricsReceiver(metrics_service_pb2_grpc.MetricsServiceServicer):
    """The last value of each counter and gauge, by name, process and labels: counters are
    cumulative.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, Labels], int] = {}

    async def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_metrics:
            process = str(resource.resource.SerializeToString(deterministic=True))
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in (*metric.sum.data_points, *metric.gauge.data_points):
                    labels = frozenset((pair.key, pair.value.string_value) for pair in point.attributes)
                    self._values[metric.name, process, labels] = point.as_int
        return metrics_service_pb2.ExportMetricsServiceResponse()

    def total(self, name: str, **labels: str) -> int:
        """The sum over all processes of what was counted under these labels."""
        wanted = set(labels.items())
        return sum(value for (found, _, has), value in self._values.items() if found == name and wanted <= has)


@contextlib.asynccontextmanager
async def metrics_receiver() -> AsyncIterator[tuple[MetricsReceiver, dict[str, str]]]:
    """A receiver, and the environment that sends a service's metrics there."""
    receiver, server = MetricsReceiver(), grpc.aio.server()
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield receiver, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{port}"}
    finally:
        await server.stop(0)
