"""What requests add to the metrics: all services in this process, with the engines that only seem
to speak, and counts that equal what was sent.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from cosyserve.client import AsyncClient
from cosyserve.errors import LimitReached, Overloaded
from cosyserve.metrics import names
from cosyserve.metrics.names import Metric
from cosyserve.rpc.server import running
from cosyserve.spec import SAMPLE_RATE
from cosyserve.v1.synthesis_pb2 import SynthesizeRequest
from cosyserve.v1.synthesis_pb2_grpc import SynthesisServiceStub
from services.frontend import __main__ as frontend
from services.frontend.settings import FrontendSettings
from services.llm.backends.fake_backend import FakeBackend
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.servicer import Token2WavServicer
from tests.stacks.calls import all_of, until
from tests.stacks.gateway_server import gateway
from tests.stacks.in_process import HERE, orchestrated, serving
from tests.stacks.key_holders import key_holder, keys_of
from tests.stacks.telemetry.scraping import Scrape, reader
from tests.stacks.up_process import TINY

TEXT = "A sentence is spoken. And another one, which is a little longer than the first, follows it."
GAUGES = (names.STREAMS_ACTIVE, names.STREAMS_WAITING, names.LLM_RUNNING, names.LLM_WAITING, names.TOKEN2WAV_PAGES_USED)


@dataclass
class Measured:
    """A stack, and what it adds to the metrics of this process."""

    address: str
    client: AsyncClient
    _before: dict[str, Scrape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = {service: reader().scrape(service) for service in names.SERVICES}

    def added(self, metric: Metric, service: str = "", **labels: str) -> float:
        """service: one that has the metric."""
        service = service or metric.services[0]
        return reader().scrape(service).count(metric, **labels) - self._before[service].count(metric, **labels)

    def sum_added(self, metric: Metric, **labels: str) -> float:
        """Of a histogram, the sum of its values."""
        name, service = f"{metric.prometheus}_sum", metric.services[0]
        return reader().scrape(service).of(name, **labels) - self._before[service].of(name, **labels)

    async def idle(self) -> None:
        """Wait until every gauge of load is back where it was."""
        await until(lambda: all(self.added(gauge) == 0 for gauge in GAUGES))


@contextlib.asynccontextmanager
async def measured(
    *, token_milliseconds: float = 0.0, ended_llm: bool = False, **settings: Any
) -> AsyncIterator[Measured]:
    """ended_llm: whether there is a replica of the llm whose engine has ended, too. settings: of
    the orchestrator.
    """
    options = LlmSettings(listen=HERE, backend="fake", fake_token_milliseconds=token_milliseconds)
    engines = [FakeBackend(options) for _ in range(1 + ended_llm)]
    sound = load_backend("fake", EngineSettings())
    batcher = Batcher(sound.decoders, Limits(max_streams=32, state_bytes=1 << 30), hold_seconds=0.0)
    words = FrontendSettings(listen=HERE, model=TINY, drain_seconds=0.0)
    async with contextlib.AsyncExitStack() as exits:
        exits.callback(batcher.close)
        decoding = Token2WavServicer(sound.identity, batcher)
        reading = running(frontend.SERVICE, words, lambda service: frontend.load(service, words))
        stages = {
            "frontend": [await exits.enter_async_context(reading)],
            "llm": [await exits.enter_async_context(serving("llm", LlmServicer(engine))) for engine in engines],
            "token2wav": [await exits.enter_async_context(serving("token2wav", decoding))],
        }
        door, _ = await exits.enter_async_context(orchestrated(stages, **{"max_streams": 8, **settings}))
        address = f"127.0.0.1:{door.port}"
        client = await exits.enter_async_context(AsyncClient(address))
        if ended_llm:
            await engines[0].close()
        yield Measured(address, client)


async def test_every_request_is_counted_with_its_first_sound_and_its_audio() -> None:
    async with measured() as stack:
        speeches = [await stack.client.synthesize(TEXT, seed=seed).read() for seed in range(3)]
        await stack.idle()
        assert stack.added(names.REQUESTS, method="Synthesize", status="OK") == 3
        assert stack.added(names.REQUESTS) == 3
        assert stack.added(names.FIRST_BYTE, method="Synthesize") == 3
        assert [stack.added(names.FIRST_SOUND_TERM, term=term) for term in names.TERMS] == [3] * len(names.TERMS)
        whole = stack.sum_added(names.FIRST_BYTE, method="Synthesize")
        assert stack.sum_added(names.FIRST_SOUND_TERM) == pytest.approx(whole)
        for term in ("frontend", "llm", "token2wav"):
            assert 0 < stack.sum_added(names.FIRST_SOUND_TERM, term=term) < whole
        assert stack.added(names.FIRST_AUDIBLE, method="Synthesize") == 3
        assert stack.added(names.REAL_TIME_FACTOR) == 3
        assert stack.added(names.CHARACTERS, key="", tenant="") == 3 * len(TEXT)
        seconds = sum(map(len, speeches)) / 2 / SAMPLE_RATE
        assert stack.added(names.AUDIO_SECONDS, key="", tenant="") == pytest.approx(seconds, abs=0.01)
        assert stack.added(names.PLAYBACK_SLACK) > 3
        # Three calls of each stage, two sentences in each request.
        assert stack.added(names.STAGE_FIRST_RESULT) >= 3 + 3 + 3
        assert stack.added(names.BATCH_SIZE, "token2wav") > 3
        nothing = (names.CANCELS, names.CANCEL_SECONDS, names.FAILOVERS, names.GUARDS, names.REFUSALS, names.FAULTS)
        assert [stack.added(metric, "orchestrator") for metric in nothing] == [0] * len(nothing)


async def test_a_hang_up_is_counted_in_every_stage_and_leaves_nothing() -> None:
    async with measured(token_milliseconds=20.0) as stack:
        async with stack.client.synthesize(" ".join([TEXT] * 20)) as speech:
            await anext(speech)
            assert stack.added(names.STREAMS_ACTIVE, "orchestrator") >= 1
            assert stack.added(names.LLM_RUNNING) >= 1
            assert stack.added(names.TOKEN2WAV_PAGES_USED) >= 1
        await stack.idle()
        await until(lambda: stack.added(names.REQUESTS, method="Synthesize", status="CANCELLED") == 1)
        # The orchestrator's caller, and the orchestrator as the caller of the llm and of token2wav.
        await until(lambda: stack.added(names.CANCELS) >= 3)
        assert stack.added(names.CANCEL_SECONDS) == stack.added(names.CANCELS)
        assert stack.sum_added(names.CANCEL_SECONDS) < 20
        assert stack.added(names.REAL_TIME_FACTOR) == 0, "only what was finished has a pace"


async def test_a_deadline_is_counted_as_the_caller_reads_it() -> None:
    async with measured(token_milliseconds=20.0) as stack, grpc.aio.insecure_channel(stack.address) as channel:
        stub, request = SynthesisServiceStub(channel), SynthesizeRequest(text=" ".join([TEXT] * 20))
        for seconds in (timeouts := (0.3, 1.0, 2.0)):  # before the first sound, and behind it
            with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
                await all_of(stub.Synthesize(request, timeout=seconds))
        await stack.idle()
        await until(lambda: stack.added(names.REQUESTS) == len(timeouts))
        assert stack.added(names.REQUESTS, method="Synthesize", status="DEADLINE_EXCEEDED") == len(timeouts)


async def test_a_full_server_counts_whom_it_refuses() -> None:
    async with measured(token_milliseconds=20.0, max_streams=1) as stack:
        async with stack.client.synthesize(" ".join([TEXT] * 20)) as speech:
            await anext(speech)
            for _ in range(2):
                with pytest.raises(Overloaded):
                    await stack.client.synthesize(TEXT, resumptions=0).read()
        await stack.idle()
        assert stack.added(names.REFUSALS, limit="streams") == stack.added(names.REFUSALS) == 2
        assert stack.added(names.REQUESTS, method="Synthesize", status="RESOURCE_EXHAUSTED") == 2


async def test_a_key_has_its_own_counts_and_its_limit_is_named() -> None:
    alice = key_holder("alice", tenant="clinic", limits={"requests_per_minute": 1})
    async with measured(keys=keys_of([alice])) as stack, AsyncClient(stack.address, api_key=alice.secret) as client:
        await client.synthesize(TEXT).read()
        with pytest.raises(LimitReached) as refused:
            await client.synthesize(TEXT, resumptions=0).read()
        assert refused.value.limit == "rate", "the client learns which"
        await stack.idle()
        assert stack.added(names.REFUSALS, limit="rate") == stack.added(names.REFUSALS) == 1
        statuses = {
            status: stack.added(names.KEY_REQUESTS, key="alice", tenant="clinic", status=status)
            for status in ("OK", "RESOURCE_EXHAUSTED")
        }
        assert statuses == {"OK": 1, "RESOURCE_EXHAUSTED": 1}
        assert stack.added(names.CHARACTERS, key="alice", tenant="clinic") == len(TEXT)
        with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
            async with grpc.aio.insecure_channel(stack.address) as channel:
                await channel.unary_unary("/cosyserve.v1.SynthesisService/ListVoices")(b"")
        await until(lambda: stack.added(names.REQUESTS, method="ListVoices", status="UNAUTHENTICATED") == 1)


async def test_a_replica_that_is_gone_is_a_failover() -> None:
    async with measured(ended_llm=True) as stack:
        await asyncio.gather(*(stack.client.synthesize(TEXT, seed=seed).read() for seed in range(4)))
        assert stack.added(names.REQUESTS, status="OK") == 4
        assert stack.added(names.FAILOVERS, stage="llm") == stack.added(names.FAILOVERS) >= 1


async def test_the_gateway_counts_by_api() -> None:
    async with measured() as stack, gateway(stack.address, max_websockets=1, max_held_bytes=1 << 20) as served:
        answers = [
            await served.http.post("/v1/audio/speech", json={"model": "tts-1", "voice": "alloy", "input": text})
            for text in (TEXT, TEXT, "")
        ]
        answers.append(await served.http.get("/v1/nothing"))
        answers.append(await served.http.get("/healthz"))
        # Refused before there is a route.
        answers.append(await served.http.post("/v1/audio/speech", content=b"x" * 2_000_000))
        whole = {"tts_text": " ".join([TEXT] * 50), "format": "wav"}
        answers.append(await served.http.post("/inference_sft", data=whole))
        async with connect(address := f"ws://{served.address}/v1/audio/stream"):
            with pytest.raises(InvalidStatus, match="503"):
                await connect(address)
        assert [answer.status_code for answer in answers] == [200, 200, 400, 404, 200, 413, 429]
        await until(lambda: stack.added(names.REQUESTS, "gateway", method="openai", status="OK") == 2)
        assert stack.added(names.REQUESTS, "gateway", method="openai", status="INVALID_ARGUMENT") == 1
        assert stack.added(names.REQUESTS, "gateway", method="other", status="NOT_FOUND") == 1
        refused = {"method": "openai", "status": "RESOURCE_EXHAUSTED"}
        await until(lambda: stack.added(names.REQUESTS, "gateway", **refused) == 1)
        refused = {"method": "websocket", "status": "UNAVAILABLE"}
        await until(lambda: stack.added(names.REQUESTS, "gateway", **refused) == 1)
        limits = ("body", "memory", "connections")
        assert [stack.added(names.REFUSALS, "gateway", limit=limit) for limit in limits] == [1, 1, 1]
        # A whole file that was refused had begun to sound.
        assert [stack.added(names.FIRST_BYTE, "gateway", method=api) for api in ("openai", "cosyvoice")] == [2, 0]
        await stack.idle()
