"""A real Prometheus scrapes a stack of processes under load, and says what the callers saw: how
many requests ended how, which limit refused how many, which share had its first byte in time, and
how many pods KEDA gives each service.
"""

import asyncio
import json
import random
from bisect import bisect_left
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cosyserve.load.measurement import percentile
from cosyserve.metrics import names
from cosyserve.metrics.names import GATEWAY, ORCHESTRATOR
from tests.monitoring.loaded_stack import PLACES, Observed, held, observed
from tests.stacks.key_holders import key_holder
from tests.stacks.telemetry.made_series import wanted_pods
from tests.stacks.telemetry.prometheus_server import needs_prometheus
from tests.stacks.up_process import ROOT
from tests.unit.chart.manifests_of import by_name, documents, needs_helm

pytestmark = [needs_prometheus, needs_helm]
REPORT = ROOT / "build" / "monitoring" / "under-load.json"
"""Of the long load."""
TEXT = "A sentence is spoken."
LONG = ("A sentence is spoken, and another one follows it in the same breath, longer than the first. " * 220)[:19_900]
SLO_SECONDS = 0.4
ALICE = key_holder("alice")
HURRIED = key_holder("hurried", limits={"requests_per_minute": 2})
TALKATIVE = key_holder("talkative", limits={"characters_per_minute": 2 * len(TEXT)})
SINGLE = key_holder("single", limits={"concurrent": 1})
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
        grpc.streaming(ALICE, seconds=1.0),
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
    async with held(stack, grpc.synthesize(SINGLE, LONG)):
        assert await grpc.synthesize(SINGLE, TEXT) == await http.elevenlabs(SINGLE, TEXT) == "RESOURCE_EXHAUSTED"
    async with http.socket(ALICE), http.socket(ALICE):
        assert await http.utterances(ALICE, TEXT) == ["UNAVAILABLE"]
    assert await http.cosyvoice(ALICE, LONG) == "RESOURCE_EXHAUSTED"


def scaled(service: str) -> tuple[str, float, int, int]:
    """Query, target, fewest and most pods of the ScaledObject in the chart."""
    spec = by_name("ScaledObject", documents("cpu-demo", *KEDA))[service]["spec"]
    metadata = spec["triggers"][-1]["metadata"]
    return metadata["query"], float(metadata["threshold"]), spec["minReplicaCount"], spec["maxReplicaCount"]


async def pods_of(stack: Observed, service: str, held_share: float) -> int:
    """What KEDA and the autoscaler of Kubernetes make of the load, once it is that of the streams
    that callers hold.
    """
    query, target, least, most = scaled(service)
    read: list[float] = []

    async def reached() -> bool:
        read.append((await stack.prometheus.values(query))[()])
        # A frontend is done with a text long before it is spoken.
        return read[-1] == pytest.approx(held_share) or (service == "frontend" and read[-1] < held_share)

    try:
        await stack.until(reached)
    except TimeoutError:
        raise AssertionError(f"{service}: a load of {held_share} is held, its query finds {read[-5:]}") from None
    return wanted_pods(read[-1], target, 1, least, most)


async def pods_at_each_level(stack: Observed) -> dict[str, tuple[int, ...]]:
    """Pods by service, while streams are held; at the highest level further ones are refused."""
    given: dict[str, list[int]] = {service: [] for service in WANTED}
    for by_grpc, by_http in LEVELS:
        requests = [stack.grpc.synthesize(ALICE, LONG) for _ in range(by_grpc)]
        requests += [stack.http.openai(ALICE, LONG) for _ in range(by_http)]
        async with held(stack, *requests):
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


@pytest.mark.parametrize("load", [Load(1, 6, 6), Load(20, 300, 6, alone=True)], ids=["short", "long"])
async def test_prometheus_says_what_callers_saw(load: Load, tmp_path: Path) -> None:
    async with observed(tmp_path, (ALICE, HURRIED, TALKATIVE, SINGLE)) as stack:
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

        report = {"requests": sum(said.values()), "refusals": sum(stack.seen.refusals.values()), "first_bytes": {}}
        by_grpc, by_http = (stack.seen.seconds[method][first[method] :] for method in ("Synthesize", "openai"))
        for service, method, seconds in ((GATEWAY, "openai", by_http), (ORCHESTRATOR, "Synthesize", by_grpc + by_http)):
            found = await stack.first_bytes_since(before, service, method)
            assert found.buckets[-1] == len(seconds)
            # A service measures a part of the time that its caller waits.
            waited = [sum(each <= border for each in seconds) for border in names.SECONDS]
            assert [have >= want for have, want in zip(found.buckets, waited, strict=False)] == [True] * len(waited)
            share = sum(each <= SLO_SECONDS for each in seconds) / len(seconds)
            p95 = percentile(seconds, 95) or 0.0
            report["first_bytes"][service] = {"said": [found.share, found.p95], "seen": [share, p95]}
            if load.alone:
                assert found.share == pytest.approx(share, abs=0.01), report
                assert bisect_left(names.SECONDS, found.p95) == bisect_left(names.SECONDS, p95), report
        if load.alone:
            REPORT.parent.mkdir(parents=True, exist_ok=True)
            REPORT.write_text(json.dumps(report, indent=2), encoding="utf-8")
