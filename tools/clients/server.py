"""The stack under trial: every service on free ports, and a receiver of the spans that they send,
which say when the work of a request ended in each of them.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from cosyserve.host.supervision.layout import STAGES, free_ports
from cosyserve.host.supervision.supervisor import local_deployment
from tools.clients.guarded import guarded_orchestrator


class Spans(trace_service_pb2_grpc.TraceServiceServicer):
    """What the services did, by trace."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, int]] = {}
        self._news = asyncio.Condition()

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name in the protocol
        async with self._news:
            for resource in request.resource_spans:
                names = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    ends = self._ends.setdefault(span.trace_id.hex(), {})
                    service = names["service.name"]
                    ends[service] = max(ends.get(service, 0), span.end_time_unix_nano)
            self._news.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    async def ends(self, trace_id: str, services: frozenset[str], seconds: float = 30.0) -> dict[str, int]:
        """When the last span of a trace ended in each service, in nanoseconds since 1970, once
        all of `services` have sent theirs. Raises TimeoutError.
        """
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: services <= self._ends.get(trace_id, {}).keys())
        return dict(self._ends[trace_id])


@dataclass(frozen=True)
class Server:
    """http: address of the gateway with its scheme. grpc: host:port of the public service. wyoming:
    host:port of the gateway's Wyoming. guarded: a folder, see `guarded_orchestrator`.
    """

    http: str
    grpc: str
    wyoming: str
    guarded: str
    spans: Spans


@contextlib.asynccontextmanager
async def server(model: Path) -> AsyncIterator[Server]:
    """All services of a model while the block runs, with a store of voices of their own."""
    spans, receiver = Spans(), grpc.aio.server()
    add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add(spans, receiver)
    port = receiver.add_insecure_port("127.0.0.1:0")
    await receiver.start()
    with tempfile.TemporaryDirectory() as voices, tempfile.TemporaryDirectory() as folder:
        wyoming = f"127.0.0.1:{free_ports(1)[0]}"
        environ = {
            "COSYSERVE_FRONTEND_VOICES_URL": voices,
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "COSYSERVE_GATEWAY_WYOMING_LISTEN": wyoming,
            # What clients make of a refusal is another matter: not all of them try again.
            "COSYSERVE_ORCHESTRATOR_ADAPTIVE_LIMIT": "off",
        }
        try:
            async with local_deployment(model, http="127.0.0.1:0", environ=environ) as stack:
                stages = {each.name: f"127.0.0.1:{each.port}" for each in stack.children if each.name in STAGES}
                async with guarded_orchestrator(stages, Path(folder)):
                    yield Server(f"http://{stack.http}", stack.address, wyoming, folder, spans)
        finally:
            await receiver.stop(1.0)
