"""What the services of a running stack answer to a scraper, without and with a collector."""

import asyncio
import shutil
import subprocess
import urllib.error
import urllib.request

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

from cosyserve.client import AsyncClient
from cosyserve.metrics import names
from cosyserve.metrics.names import Needs
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.stacks.calls import all_of
from tests.stacks.scripted_server import listening
from tests.stacks.telemetry.scraping import OPEN_METRICS, Scrape, ScrapedStack, scraped_stack
from tests.stacks.telemetry.trace_receiver import TraceReceiver
from tests.stacks.up_process import TINY

SAID = 5
TEXT = "A sentence is spoken."
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def scrape(stack: ScrapedStack, service: str, accept: str = "") -> Scrape:
    return await asyncio.to_thread(stack.scrape, service, accept)


async def speak(stack: ScrapedStack, **metadata: str) -> None:
    async with grpc.aio.insecure_channel(stack.stack.address) as channel:
        stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        call = stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=TEXT), metadata=tuple(metadata.items()))
        await all_of(call)


async def post(stack: ScrapedStack, body: bytes) -> int:
    def send() -> int:
        address = f"http://{stack.stack.http}/v1/audio/speech"
        request = urllib.request.Request(address, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    return await asyncio.to_thread(send)


async def test_every_name_is_exported_and_counts_equal_what_was_sent() -> None:
    async with scraped_stack(TINY, backend="fake") as stack, AsyncClient(stack.stack.address) as client:
        fresh = {service: await scrape(stack, service) for service in names.SERVICES}
        for seed in range(SAID):
            await client.synthesize(TEXT, seed=seed).read()
        good = b'{"model": "tts-1", "voice": "alloy", "input": "Hello there."}'
        assert [await post(stack, body) for body in (good, good, good, b"[]")] == [200, 200, 200, 400]
        after = {service: await scrape(stack, service) for service in names.SERVICES}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{stack.ports['llm']}/metric")
    for service, found in after.items():
        own = [metric for metric in names.ALL if service in metric.services]
        typed = {family.name: family.type for family in fresh[service].families}
        assert typed == {
            metric.prometheus.removesuffix("_total") if metric.kind.value == "counter" else metric.prometheus: (
                metric.kind.value
            )
            for metric in own
        }
        sampled = {sample.name for sample in found.samples}
        for metric in own:
            name = f"{metric.prometheus}_count" if metric.borders else metric.prometheus
            # The kind of engine is one to which no fallback was needed, and there are no keys.
            if metric.needs is Needs.NOTHING and metric not in (names.ENGINE_RUNGS_REFUSED, names.KEY_REQUESTS):
                assert name in sampled, (service, name)
        assert {sample.labels["service"] for sample in found.samples} == {service}
        assert found.count(names.STREAMS_ACTIVE) == 0
        assert found.count(names.STREAMS_LIMIT) > 0
        assert found.count(names.TASKS) > 0
        assert found.count(names.CANCELS) == found.count(names.CANCEL_SECONDS) == 0
    orchestrator, gateway = after["orchestrator"], after["gateway"]
    assert orchestrator.count(names.REQUESTS, method="Synthesize", status="OK") == SAID + 3
    assert orchestrator.count(names.FIRST_BYTE, method="Synthesize") == SAID + 3
    assert gateway.count(names.REQUESTS, method="openai", status="OK") == 3
    assert gateway.count(names.REQUESTS, method="openai", status="INVALID_ARGUMENT") == 1
    assert gateway.count(names.FIRST_BYTE, method="openai") == 3
    for stage in names.STAGES:
        # The decoder said a token when it came up, so that the voice is warm.
        assert SAID + 3 <= after[stage].count(names.STAGE_FIRST_RESULT) <= SAID + 3 + (stage == "token2wav")
    assert after["token2wav"].count(names.CACHE_LOOKUPS, cache="prompts") in (0, SAID + 4)
    assert after["llm"].count(names.ENGINE_RUNG, rung="fake") == 1


async def test_exemplars_and_log_lines_lead_to_the_traces_that_were_sampled() -> None:
    receiver, lines = TraceReceiver(), list[str]()
    async with listening(trace_service_pb2_grpc.add_TraceServiceServicer_to_server, receiver) as address:
        environ = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://{address}",
            # No request is traced unless its caller has decided otherwise.
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0",
        }
        async with scraped_stack(TINY, environ, backend="fake", http=None, log=lines.append) as stack:
            await speak(stack)
            await speak(stack, traceparent=f"00-{TRACE}-{SPAN}-01")
            plain = await asyncio.to_thread(stack.text, "orchestrator")
            scraped = {service: await scrape(stack, service, OPEN_METRICS) for service in names.GRPC}
    assert {span.trace_id.hex() for _, span in receiver.spans} == {TRACE}
    assert {service for service, _ in receiver.spans} == set(names.GRPC)
    spans = {span.span_id.hex() for _, span in receiver.spans}
    assert "trace_id" not in plain
    for service in names.GRPC:
        metric = names.FIRST_BYTE if service == "orchestrator" else names.STAGE_FIRST_RESULT
        samples = [one for one in scraped[service].samples if one.name == f"{metric.prometheus}_bucket"]
        exemplars = [sample.exemplar for sample in samples if sample.exemplar]
        assert {exemplar.labels["trace_id"] for exemplar in exemplars} == {TRACE}, service
        assert {exemplar.labels["span_id"] for exemplar in exemplars} <= spans
    (line,) = [line for line in lines if f" trace={TRACE}: request " in line]
    assert "status=OK" in line


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is of Debian's package prometheus")
async def test_promtool_finds_nothing_wrong() -> None:
    async with scraped_stack(TINY, backend="fake") as stack:
        await speak(stack)
        for service in names.SERVICES:
            text = await asyncio.to_thread(stack.text, service)
            assert await asyncio.to_thread(promtool, text) == (0, "", ""), service


def promtool(text: str) -> tuple[int, str, str]:
    """Status and output of `promtool check metrics`."""
    command = ["promtool", "check", "metrics"]
    checked = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    return checked.returncode, checked.stdout, checked.stderr
