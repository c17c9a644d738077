"""One trace per request, read from a real OTLP/gRPC receiver."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.stacks.scripted_server import listening
from tests.stacks.up_process import TINY

DOOR = "cosyserve.v1.SynthesisService/Synthesize"
CALLERS_TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLERS_SPAN = "b7ad6b7169203331"


@dataclass(frozen=True)
class Span:
    service: str
    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """What an OpenTelemetry collector does with an export: takes it."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    async def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_spans:
            service = next(
                pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name"
            )
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        service,
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                    )
                    for span in scope.spans
                ]
        return trace_service_pb2.ExportTraceServiceResponse()


async def _speak(stub: Any, text: str, **metadata: str) -> int:
    """Synthesize; the number of audio messages."""
    call = stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=text, seed=3), metadata=tuple(metadata.items()))
    return sum([bool(response.audio) async for response in call])


async def test_one_trace_per_request_with_every_stage_below_it() -> None:
    receiver = Receiver()
    async with listening(trace_service_pb2_grpc.add_TraceServiceServicer_to_server, receiver) as address:
        # Leaving the stack makes every service send what it still holds.
        stack_of = local_deployment(TINY, backend="fake", environ={"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}"})
        async with stack_of as stack, grpc.aio.insecure_channel(stack.address) as channel:
            stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)
            chunks, *_ = await asyncio.gather(
                _speak(stub, "A single sentence is spoken.", traceparent=f"00-{CALLERS_TRACE}-{CALLERS_SPAN}-01"),
                _speak(stub, "Another request at the same time."),
            )
    by_trace: dict[str, list[Span]] = {}
    for span in receiver.spans:
        by_trace.setdefault(span.trace, []).append(span)
    doors = [span for span in receiver.spans if span.name == DOOR]
    assert len(doors) == len({span.trace for span in doors}) == 2
    assert {span.parent for span in doors} == {CALLERS_SPAN, ""}

    ours = by_trace[CALLERS_TRACE]
    names = {span.id: span.name for span in ours}
    tree = Counter((names.get(span.parent, "the caller"), span.name) for span in ours)
    analyze, generate, decode = (
        "cosyserve.v1." + name
        for name in ("FrontendService/Analyze", "LlmService/Generate", "Token2WavService/DecodeStream")
    )
    assert tree.pop((decode, "token2wav.flow")) == tree.pop((decode, "token2wav.vocoder")) == chunks
    assert chunks > 1
    # On a busy machine a first piece may wait for the second.
    tree.pop((decode, "token2wav.hold"), None)
    assert tree == Counter(
        {
            ("the caller", DOOR): 1,
            (DOOR, "cosyserve.v1.FrontendService/GetVoice"): 1,
            (DOOR, analyze): 1,
            (analyze, "frontend.analyze"): 1,
            (DOOR, generate): 1,
            (generate, "llm.queue"): 1,
            (generate, "llm.prefill"): 1,
            (generate, "llm.first_hop"): 1,
            (generate, "llm.decode"): 1,
            (DOOR, decode): 1,
        }
    )
    assert {span.service for span in ours} == {"SynthesisService", "FrontendService", "LlmService", "Token2WavService"}
    door = next(span for span in ours if span.name == DOOR)
    assert all(door.start <= span.start <= span.end <= door.end for span in ours), (
        "all the work lies inside the request"
    )
