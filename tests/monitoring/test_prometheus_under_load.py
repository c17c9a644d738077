"""A real Prometheus scrapes a stack of processes under load, and says what the callers saw: how
many requests ended how, which limit refused how many, which share had its first byte in time, and
how many pods KEDA gives each service.

Engines are fakes with a pace, so that streams last as long as the test holds them.
"""

import asyncio
import contextlib
import random
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from cosyserve.load.measurement import percentile
from cosyserve.metrics import names
from cosyserve.metrics.names import GATEWAY, ORCHESTRATOR
from services.frontend.text.text_scheduler import MOST_CALLS
from tests.monitoring.callers import GrpcCaller, HttpCaller, Seen
from tests.stacks.key_holders import key_holder, keys_of
from tests.stacks.telemetry.prometheus_server import Prometheus, needs_prometheus, prometheus
from tests.stacks.telemetry.scraping import scraped_stack
from tests.stacks.up_process import TINY
from tests.unit.chart.manifests_of import by_name, documents, needs_helm
from tests.unit.chart.prometheus_server import wanted_pods
from tools.chart.rendering import NAMESPACE, RELEASE

pytestmark = [needs_prometheus, needs_helm]
TEXT = "A sentence is spoken."
LONG = ("A sentence is spoken, and another one follows it in the same breath, longer than the first. " * 220)[:19_900]
SLO_SECONDS = 0.4
PLACES = {"frontend": MOST_CALLS, "llm": 4, "token2wav": 12, "orchestrator": 12, "gateway": 10}
"""Of the only pod of each service."""
ENVIRON = {
    "COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": "5",
    "COSYSERVE_LLM_MAX_SEQUENCES": str(PLACES["llm"]),
    "COSYSERVE_LLM_MAX_WAITING": "32",
    "COSYSERVE_TOKEN2WAV_MAX_STREAMS": str(PLACES["token2wav"]),
    "COSYSERVE_ORCHESTRATOR_MAX_STREAMS": str(PLACES["orchestrator"]),
    "COSYSERVE_ORCHESTRATOR_ADAPTIVE_LIMIT": "off",
    "COSYSERVE_GATEWAY_MAX_CONNECTIONS": str(PLACES["gateway"]),
    "COSYSERVE_GATEWAY_MAX_WEBSOCKETS": "2",
    "COSYSERVE_GATEWAY_MAX_HELD_BYTES": str(1 << 20),
}
ALICE = key_holder("alice")
HURRIED = key_holder("hurried", limits={"requests_per_minute": 2})
TALKATIVE = key_holder("talkative", limits={"characters_per_minute": 2 * len(TEXT)})
SINGLE = key_holder("single", limits={"concurrent": 1})
PATIENCE = 120.0
ONCE = httpx2.Limits(max_keepalive_connections=0)
"""A connection for each request: the gateway closes those that wait when it has too many."""
LEVELS = ((1, 0), (2, 3), (3, 9))
"""Streams that are held through gRPC and through HTTP."""
WANTED = {
    # 1, 5 and 12 streams on 4, 12 and 12 places, 0, 3 and 9 on 10; target 0.7, at most 4.
    "frontend": (1, 1, 1),
    "llm": (1, 2, 4),
    "token2wav": (1, 1, 2),
    "orchestrator": (1, 1, 2),
    "gateway": (1, 1, 2),
}
KEDA = ("--set", "autoscaling.kind=keda", "--set", "autoscaling.prometheus.address=http://prometheus:9090")


@dataclass(frozen=True)
class Load:
    """rounds: of every kind of request. timed: requests whose first byte is compared, through each
    door. at_once: of them. alone: whether the machine has nothing else to do, so that callers are
    as punctual as services.
    """

    rounds: int
    timed: int
    at_once: int
    alone: bool = False


@dataclass(frozen=True)
class FirstBytes:
    """buckets: requests at most as long as each border, and all. share: of those in time. p95: as
    Prometheus estimates it, in seconds.
    """

    buckets: list[float]
    share: float
    p95: float


@dataclass
class Observed:
    """A stack under a Prometheus, and its callers."""

    prometheus: Prometheus
    grpc: GrpcCaller
    http: HttpCaller
    seen: Seen

    async def until(self, reached: Callable[[], Awaitable[object]]) -> None:
        """Wait until Prometheus knows it: each second it asks the services."""
        async with asyncio.timeout(PATIENCE):
            while not await reached():
                await asyncio.sleep(0.2)

    async def idle(self) -> bool:
        active = await self.prometheus.values("cosyserve_streams_active", "service")
        return set(active.values()) == {0.0}

    async def first_bytes_since(self, moment: float, service: str, method: str) -> FirstBytes:
        """moment: of a scrape, in seconds since the epoch."""
        name = names.FIRST_BYTE.prometheus
        of = f'{{service="{service}",method="{method}"}}'
        grown = f"sum by (le) ({name}_bucket{of} - {name}_bucket{of} @ {moment})"
        buckets = await self.prometheus.values(grown, "le")
        share = f"({grown}) / on () group_left () sum({name}_count{of} - {name}_count{of} @ {moment})"
        ((_, in_time),) = (
            await self.prometheus.values(f'({share}) and on (le) {name}_bucket{{le="0.4"}}', "le")
        ).items()
        ((_, p95),) = (await self.prometheus.values(f"histogram_quantile(0.95, {grown})")).items()
        by_border = sorted((float(border), count) for (border,), count in buckets.items())
        return FirstBytes([count for _, count in by_border], in_time, p95)


@contextlib.asynccontextmanager
async def observed(folder: Path) -> AsyncIterator[Observed]:
    """Series are marked as the chart's PodMonitors mark those of a release."""
    environ = {**ENVIRON, "COSYSERVE_ORCHESTRATOR_KEYS": keys_of([ALICE, HURRIED, TALKATIVE, SINGLE])}
    marks = {"namespace": NAMESPACE, "app_kubernetes_io_instance": RELEASE}
    seen = Seen()
    async with scraped_stack(TINY, environ, backend="fake") as stack:
        scraped = {"targets": [f"127.0.0.1:{port}" for port in stack.ports.values()], "labels": marks}
        job = {"job_name": "speech", "scrape_interval": "1s", "scrape_timeout": "1s", "static_configs": [scraped]}
        async with (
            prometheus(folder, {"scrape_configs": [job]}) as server,
            grpc.aio.insecure_channel(stack.stack.address) as channel,
            httpx2.AsyncClient(base_url=f"http://{stack.stack.http}", timeout=PATIENCE, limits=ONCE) as http,
        ):
            callers = GrpcCaller(channel, seen), HttpCaller(http, str(stack.stack.http), seen)
            yield Observed(server, *callers, seen)


def every_kind(stack: Observed) -> list[Coroutine[Any, Any, object]]:
    """Requests that end in every way, through both doors."""
    grpc, http = stack.grpc, stack.http
    return [
        grpc.synthesize(ALICE, TEXT),
        grpc.unary(ALICE, TEXT),
        grpc.streaming(ALICE, TEXT, TEXT),
        grpc.synthesize(ALICE, ""),
        grpc.synthesize(ALICE, TEXT, voice="nobody"),
        grpc.get_voice(ALICE, "nobody"),
        grpc.streaming(ALICE, seconds=2.0),
        grpc.synthesize(ALICE, LONG, hang_up=True),
        grpc.synthesize(None, TEXT),
        grpc.no_method(ALICE),
        http.openai(ALICE, TEXT),
        http.elevenlabs(ALICE, TEXT),
        http.cosyvoice(ALICE, TEXT),
        http.utterances(ALICE, TEXT, TEXT),
        http.openai(ALICE, ""),
        http.openai(None, TEXT),
        http.openai(ALICE, "x" * 2_000_000, passed_on=""),
        http.openai(ALICE, LONG, hang_up=True),
        http.no_path(ALICE),
    ]


async def over_limits(stack: Observed) -> None:
    """Each limit refuses somebody, but for those of places."""
    grpc, http = stack.grpc, stack.http
    assert [await grpc.synthesize(HURRIED, TEXT) for _ in range(3)] == ["OK", "OK", "RESOURCE_EXHAUSTED"]
    assert await http.openai(HURRIED, TEXT) == "RESOURCE_EXHAUSTED"
    assert [await http.openai(TALKATIVE, TEXT) for _ in range(3)] == ["OK", "OK", "RESOURCE_EXHAUSTED"]
    async with held(grpc.synthesize(SINGLE, LONG)):
        await stack.until(lambda: stack.prometheus.query('cosyserve_streams_active{service="orchestrator"} > 0'))
        assert await grpc.synthesize(SINGLE, TEXT) == await http.elevenlabs(SINGLE, TEXT) == "RESOURCE_EXHAUSTED"
    async with http.socket(ALICE), http.socket(ALICE):
        assert await http.utterances(ALICE, TEXT) == ["UNAVAILABLE"]
    assert await http.cosyvoice(ALICE, LONG) == "RESOURCE_EXHAUSTED"


@contextlib.asynccontextmanager
async def held(*requests: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """They are under way while the block runs; then their callers hang up."""
    tasks = [asyncio.create_task(request) for request in requests]
    try:
        yield
    finally:
        assert not [task for task in tasks if task.done()], "a stream ended by itself"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def scaled(service: str) -> tuple[str, float, int, int]:
    """Query, target, fewest and most pods of the ScaledObject in the chart."""
    spec = by_name("ScaledObject", documents("cpu-demo", *KEDA))[service]["spec"]
    metadata = spec["triggers"][-1]["metadata"]
    return metadata["query"], float(metadata["threshold"]), spec["minReplicaCount"], spec["maxReplicaCount"]


async def pods_of(stack: Observed, service: str, expected: float) -> int:
    """What KEDA and the autoscaler of Kubernetes make of the load, once it is that of the streams
    that callers hold.
    """
    query, target, least, most = scaled(service)

    async def load() -> float:
        (series,) = await stack.prometheus.query(query)
        return float(series["value"][1])

    async def reached() -> bool:
        return await load() == pytest.approx(expected)

    await stack.until(reached)
    return wanted_pods(expected, target, 1, least, most)


async def pods_at_each_level(stack: Observed) -> dict[str, tuple[int, ...]]:
    """Pods by service, while streams are held; at the highest level further ones are refused."""
    given: dict[str, list[int]] = {service: [] for service in WANTED}
    for by_grpc, by_http in LEVELS:
        requests = [stack.grpc.synthesize(ALICE, LONG) for _ in range(by_grpc)]
        requests += [stack.http.openai(ALICE, LONG) for _ in range(by_http)]
        async with held(*requests):
            known = {service: (by_grpc + by_http) / PLACES[service] for service in PLACES if service != GATEWAY}
            for service, load in {**known, "gateway": by_http / PLACES["gateway"]}.items():
                given[service].append(await pods_of(stack, service, load))
            if by_grpc + by_http == PLACES["orchestrator"]:
                refused = (
                    stack.grpc.synthesize(ALICE, TEXT),
                    stack.grpc.unary(ALICE, TEXT),
                    stack.http.openai(ALICE, TEXT),
                )
                assert set(await asyncio.gather(*refused)) == {"RESOURCE_EXHAUSTED"}
        await stack.until(stack.idle)
    return {service: tuple(pods) for service, pods in given.items()}


async def timed(stack: Observed, load: Load) -> None:
    """Speech of which the first byte counts, so much at once that the places of the llm are few."""
    turns = asyncio.Semaphore(load.at_once)

    async def ask(request: Coroutine[Any, Any, str]) -> None:
        async with turns:
            assert await request == "OK"

    texts = [" ".join([TEXT] * random.Random(place).randint(1, 4)) for place in range(load.timed)]
    both = [
        request for text in texts for request in (stack.grpc.synthesize(ALICE, text), stack.http.openai(ALICE, text))
    ]
    async with asyncio.TaskGroup() as group:
        for request in both:
            group.create_task(ask(request))


@pytest.mark.parametrize("load", [Load(1, 12, 4), Load(20, 300, 6, alone=True)], ids=["short", "long"])
async def test_prometheus_says_what_callers_saw(load: Load, tmp_path: Path) -> None:
    async with observed(tmp_path) as stack:
        turns = asyncio.Semaphore(load.at_once)

        async def ask(request: Coroutine[Any, Any, object]) -> None:
            async with turns:
                await request

        requests = [request for _ in range(load.rounds) for request in every_kind(stack)]
        random.Random(1).shuffle(requests)
        await asyncio.gather(*map(ask, requests))
        await over_limits(stack)
        assert await pods_at_each_level(stack) == WANTED
        before = await stack.prometheus.scraped(len(names.SERVICES))
        first = {method: len(seconds) for method, seconds in stack.seen.seconds.items()}
        await timed(stack, load)
        await stack.until(stack.idle)
        await stack.prometheus.scraped(len(names.SERVICES))

        said = await stack.prometheus.values("cosyserve_requests_total > 0", "service", "method", "status")
        # The gateway asks for the voices, too.
        assert {key: count for key, count in said.items() if key[1] != "ListVoices"} == stack.seen.requests
        assert await stack.prometheus.values("cosyserve_refusals_total > 0", "service", "limit") == stack.seen.refusals
        sounded = await stack.prometheus.values("cosyserve_first_byte_seconds_count > 0", "service", "method")
        assert sounded == stack.seen.sounded

        by_grpc, by_http = (stack.seen.seconds[method][first[method] :] for method in ("Synthesize", "openai"))
        for service, method, seconds in ((GATEWAY, "openai", by_http), (ORCHESTRATOR, "Synthesize", by_grpc + by_http)):
            found = await stack.first_bytes_since(before, service, method)
            assert found.buckets[-1] == len(seconds)
            # A service measures a part of the time that its caller waits.
            waited = [sum(each <= border for each in seconds) for border in names.SECONDS]
            assert [have >= want for have, want in zip(found.buckets, waited, strict=False)] == [True] * len(waited)
            if load.alone:
                share = sum(each <= SLO_SECONDS for each in seconds) / len(seconds)
                assert found.share == pytest.approx(share, abs=0.01), (service, share)
                p95 = percentile(seconds, 95) or 0.0
                assert bisect_left(names.SECONDS, found.p95) == bisect_left(names.SECONDS, p95), (found.p95, p95)
