"""Takes exported spans, as an OpenTelemetry collector does."""

from typing import Any

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class TraceReceiver(trace_service_pb2_grpc.TraceServiceServicer):
    """What an OpenTelemetry collector does with an export: takes it."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        """Each with its service in front."""

    async def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_spans:
            service = next(
                pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name"
            )
            self.spans += [(service, span) for scope in resource.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()
