"""What the services count and the trace of a request, read from real OTLP/gRPC receivers."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

from cosyserve.client import AsyncClient
from cosyserve.errors import TooShort
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from cosyserve.metrics.names import TERMS
from cosyserve.v1 import frontend_pb2, frontend_pb2_grpc, synthesis_pb2, synthesis_pb2_grpc, voice_pb2
from tests.fuzz.upload_seeds import seeds
from tests.stacks.scripted_server import listening
from tests.stacks.telemetry.trace_receiver import TraceReceiver
from tests.stacks.up_process import TINY

Labels = frozenset[tuple[str, str]]


class MetricsReceiver(metrics_service_pb2_grpc.MetricsServiceServicer):
    """The last value of each counter and gauge, by name, process and labels: counters are
    cumulative.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, Labels], float] = {}

    async def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_metrics:
            process = str(resource.resource.SerializeToString(deterministic=True))
            (service,) = [
                pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name"
            ]
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in (*metric.sum.data_points, *metric.gauge.data_points):
                    labels = frozenset((pair.key, pair.value.string_value) for pair in point.attributes)
                    value = point.as_double if point.HasField("as_double") else point.as_int
                    self._values[metric.name, process, labels | {("service", service)}] = value
        return metrics_service_pb2.ExportMetricsServiceResponse()

    def total(self, name: str, **labels: str) -> float:
        """The sum over all processes of what was counted under these labels."""
        wanted = set(labels.items())
        return sum(value for (found, _, has), value in self._values.items() if found == name and wanted <= has)


@contextlib.asynccontextmanager
async def metrics_receiver() -> AsyncIterator[tuple[MetricsReceiver, dict[str, str]]]:
    """A receiver, and the environment that sends a service's metrics there."""
    receiver = MetricsReceiver()
    async with listening(metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server, receiver) as address:
        yield receiver, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://{address}"}


LOOKUPS = "cosyserve.cache.lookups"


async def read_recording(stack: LocalDeployment, times: int) -> None:
    (frontend,) = [child for child in stack.children if child.name == "frontend"]
    request = frontend_pb2.ReadRecordingRequest(recording=voice_pb2.PromptRecording(audio=seeds()["pcm16.wav"]))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{frontend.port}") as channel:
        for _ in range(times):
            await frontend_pb2_grpc.FrontendServiceStub(channel).ReadRecording(request)


async def test_prompts_and_recordings_that_were_kept_are_counted() -> None:
    async with metrics_receiver() as (receiver, environ):
        # Leaving the stack makes every service send what it still holds.
        stack_of = local_deployment(Path("models/demo"), environ={**environ, "COSYSERVE_ORCHESTRATOR_WARM_VOICES": "0"})
        async with stack_of as stack, AsyncClient(stack.address) as client:
            for _ in range(3):
                await client.synthesize("Counted.", seed=1).read()
            await read_recording(stack, 4)
    for cache, service, hits in (("prompts", "token2wav", 2), ("recordings", "frontend", 3)):
        lookups = [receiver.total(LOOKUPS, cache=cache, service=service, result=result) for result in ("hit", "miss")]
        assert lookups == [hits, 1]
    for service, refused in (("llm", ("fused", "readable")), ("token2wav", ("paged", "readable"))):
        served = [
            rung for rung in (*refused, "cpu") if receiver.total("cosyserve.engine.rung", service=service, rung=rung)
        ]
        assert len(served) == 1
        stepped_over = [
            rung for rung in refused if receiver.total("cosyserve.engine.rungs_refused", service=service, rung=rung)
        ]
        assert served == ["cpu"] if stepped_over == list(refused) else served[0] in refused


async def test_faults_and_second_attempts_are_counted_by_guard() -> None:
    said = 10
    async with metrics_receiver() as (receiver, environ):
        faulty = {"COSYSERVE_LLM_FAKE_FAULT": "short", "COSYSERVE_LLM_FAKE_FAULT_SHARE": "0.5"}
        # Slow enough that a fault of the tokens is known before any sound has left.
        slow = {"COSYSERVE_TOKEN2WAV_FAKE_TOKEN_SECONDS": "0.01"}
        stack_of = local_deployment(TINY, backend="fake", environ={**environ, **faulty, **slow})
        failed = 0
        async with stack_of as stack, AsyncClient(stack.address) as client:
            for seed in range(said):
                try:
                    await client.synthesize("A sentence.", seed=seed, retry=True).read()
                except TooShort:
                    failed += 1
    first_attempts = receiver.total("cosyserve.guards", guard="TOO_SHORT", outcome="retried")
    assert 1 <= first_attempts < said
    assert 0 <= failed < first_attempts
    assert receiver.total("cosyserve.guards", outcome="failed") == failed
    # The llm counts each attempt that fails, the orchestrator those that it cannot repair.
    assert receiver.total("cosyserve.speech.faults", guard="TOO_SHORT") == first_attempts + 2 * failed
    assert receiver.total("cosyserve.speech.faults") == receiver.total("cosyserve.speech.faults", guard="TOO_SHORT")


DOOR = "cosyserve.v1.SynthesisService/Synthesize"
CALLERS_TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLERS_SPAN = "b7ad6b7169203331"


async def _speak(stub: Any, text: str, **metadata: str) -> int:
    """Synthesize; the number of audio messages."""
    call = stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=text, seed=3), metadata=tuple(metadata.items()))
    return sum([bool(response.audio) async for response in call])


async def test_one_trace_per_request_with_every_stage_below_it() -> None:
    receiver = TraceReceiver()
    async with listening(trace_service_pb2_grpc.add_TraceServiceServicer_to_server, receiver) as address:
        # Leaving the stack makes every service send what it still holds.
        stack_of = local_deployment(TINY, backend="fake", environ={"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}"})
        async with stack_of as stack, grpc.aio.insecure_channel(stack.address) as channel:
            stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)
            chunks, *_ = await asyncio.gather(
                _speak(stub, "A single sentence is spoken.", traceparent=f"00-{CALLERS_TRACE}-{CALLERS_SPAN}-01"),
                _speak(stub, "Another request at the same time."),
            )
    doors = [span for _, span in receiver.spans if span.name == DOOR]
    assert len(doors) == len({span.trace_id for span in doors}) == 2
    assert {span.parent_span_id.hex() for span in doors} == {CALLERS_SPAN, ""}

    services = {service for service, span in receiver.spans if span.trace_id.hex() == CALLERS_TRACE}
    ours = [span for _, span in receiver.spans if span.trace_id.hex() == CALLERS_TRACE]
    names = {span.span_id: span.name for span in ours}
    tree = Counter((names.get(span.parent_span_id, "the caller"), span.name) for span in ours)
    analyze, generate, decode = (
        "cosyserve.v1." + name
        for name in ("FrontendService/Analyze", "LlmService/Generate", "Token2WavService/DecodeStream")
    )
    assert tree.pop((decode, "token2wav.flow")) == tree.pop((decode, "token2wav.vocoder")) == chunks
    assert chunks > 1
    # On a busy machine a first piece may wait for the second, and each hop for its turn.
    for wait in ("token2wav.hold", "token2wav.queue"):
        tree.pop((decode, wait), None)
    assert [tree.pop((DOOR, f"first_sound.{term}")) for term in TERMS] == [1] * len(TERMS)
    assert tree == Counter(
        {
            ("the caller", DOOR): 1,
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
    assert services == {"orchestrator", "frontend", "llm", "token2wav"}
    (door,) = [span for span in ours if span.name == DOOR]
    # The head of the request came before its call began.
    (admission,) = [span for span in ours if span.name == "first_sound.admission"]
    assert admission.start_time_unix_nano <= door.start_time_unix_nano
    ours.remove(admission)
    begins, ends = [span.start_time_unix_nano for span in ours], [span.end_time_unix_nano for span in ours]
    assert all(begin <= end for begin, end in zip(begins, ends, strict=True))
    assert (min(begins), max(ends)) == (door.start_time_unix_nano, door.end_time_unix_nano), "all work lies inside"
