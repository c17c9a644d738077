"""One trace of a request over HTTP, through a real collector (rotel), whole and explained."""

import asyncio
import contextlib
import importlib.util
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

from cosyserve.host.supervision.layout import free_ports
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.metrics.names import SERVICES, TERMS
from cosyserve.traces.first_sound import first_sounds
from cosyserve.traces.spans import read_traces
from tests.contract.telemetry.test_exports import TraceReceiver
from tests.stacks.scripted_server import listening
from tests.stacks.up_process import TINY

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SPEECH = {"model": "cosyvoice2", "input": "A sentence for its trace.", "response_format": "pcm"}
MOST_UNEXPLAINED = 0.05
ARRIVAL_SECONDS = 60


@contextlib.asynccontextmanager
async def rotel(forward_to: str) -> AsyncIterator[str]:
    """A running collector that sends what it gets to host:port; its own address for gRPC."""
    found = importlib.util.find_spec("rotel")
    assert found is not None
    assert found.origin is not None
    grpc, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    receives = ("--otlp-grpc-endpoint", grpc, "--otlp-http-endpoint", http)
    sends = ("--exporter", "otlp", "--otlp-exporter-endpoint", f"http://{forward_to}")
    program = Path(found.origin).with_name("rotel-agent")
    process = await asyncio.create_subprocess_exec(program, "start", *receives, *sends)
    try:
        async with asyncio.timeout(30):
            while not await _listens(grpc):
                assert process.returncode is None
                await asyncio.sleep(0.1)
        yield grpc
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


async def test_a_request_over_http_arrives_whole_and_its_first_sound_is_explained(tmp_path: Path) -> None:
    receiver, file = TraceReceiver(), tmp_path / "spans.jsonl"
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "through-a-collector"}
    async with (
        listening(trace_service_pb2_grpc.add_TraceServiceServicer_to_server, receiver) as address,
        rotel(address) as collector,
    ):
        environ = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://{collector}",
            "COSYSERVE_TRACE_FILE": str(file),
            # Engines with the pace of real ones that leave the machine alone.
            "COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": "10",
            "COSYSERVE_TOKEN2WAV_FAKE_TOKEN_SECONDS": "0.01",
        }
        # Leaving the stack makes every service send what it still holds.
        async with (
            local_deployment(TINY, backend="fake", http="127.0.0.1:0", environ=environ) as stack,
            httpx2.AsyncClient(base_url=f"http://{stack.http}", timeout=120) as http,
        ):
            for given in ({}, headers):  # the first one also makes what is made once
                answer = await http.post("/v1/audio/speech", json=SPEECH, headers=given)
                assert answer.status_code == 200
                assert answer.content
        kept = {span.id: span for span in read_traces([file]).spans[TRACE]}
        until = time.monotonic() + ARRIVAL_SECONDS
        while len(arrived := _of_trace(receiver)) < len(kept) and time.monotonic() < until:
            await asyncio.sleep(0.2)
    # What went through the collector is what the services wrote into the file.
    assert {(service, each) for service, each in arrived} == {(span.service, span.id) for span in kept.values()}
    assert {service for service, _ in arrived} == set(SERVICES)

    (sound,) = first_sounds(list(kept.values()))
    assert (sound.entry.name, sound.entry.parent, sound.request_id) == ("gateway POST", PARENT, "through-a-collector")
    assert [term.name for term in sound.terms] == ["gateway", *TERMS]
    follows = [moment for term in sound.terms[1:] for moment in (term.start_ns, term.end_ns)]
    assert follows == sorted(follows)
    assert max(b - a for a, b in zip(follows[1::2], follows[2::2], strict=False)) < 1_000, "terms leave no gap"
    assert sound.unexplained_share < MOST_UNEXPLAINED, sound.unexplained


def _of_trace(receiver: TraceReceiver) -> list[tuple[str, str]]:
    return [(service, span.span_id.hex()) for service, span in receiver.spans if span.trace_id.hex() == TRACE]
