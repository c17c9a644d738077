"""A stack of processes under load, and a real Prometheus that scrapes it each second.

Engines are fakes with a pace, so that streams last as long as a test holds them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2

from cosyserve.metrics import names
from services.frontend.text.text_scheduler import MOST_CALLS
from tests.monitoring.callers import GrpcCaller, HttpCaller, Seen
from tests.stacks.key_holders import KeyHolder, keys_of
from tests.stacks.telemetry.prometheus_server import Prometheus, prometheus
from tests.stacks.telemetry.scraping import scraped_stack
from tests.stacks.up_process import TINY
from tools.chart.rendering import NAMESPACE, RELEASE

PLACES = {"frontend": MOST_CALLS, "llm": 4, "token2wav": 12, "orchestrator": 12, "gateway": 10}
"""Of the only pod of each service."""
ENVIRON = {
    "COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": "5",
    "COSYSERVE_LLM_MAX_SEQUENCES": str(PLACES["llm"]),
    "COSYSERVE_LLM_MAX_WAITING": "32",
    "COSYSERVE_TOKEN2WAV_MAX_STREAMS": str(PLACES["token2wav"]),
    "COSYSERVE_ORCHESTRATOR_MAX_STREAMS": str(PLACES["orchestrator"]),
    "COSYSERVE_ORCHESTRATOR_ADAPTIVE_LIMIT": "off",
    # A key that asked a moment ago would keep a place.
    "COSYSERVE_ORCHESTRATOR_SHARE_KEPT_SECONDS": "0",
    "COSYSERVE_GATEWAY_MAX_CONNECTIONS": str(PLACES["gateway"]),
    "COSYSERVE_GATEWAY_MAX_WEBSOCKETS": "2",
    "COSYSERVE_GATEWAY_MAX_HELD_BYTES": str(1 << 20),
}
PATIENCE = 120.0
ONCE = httpx2.Limits(max_keepalive_connections=0)
"""A connection for each request: the gateway closes those that wait when it has too many."""


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
async def observed(folder: Path, holders: Sequence[KeyHolder]) -> AsyncIterator[Observed]:
    """Series are marked as the chart's PodMonitors mark those of a release."""
    environ = {**ENVIRON, "COSYSERVE_ORCHESTRATOR_KEYS": keys_of(holders)}
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


@contextlib.asynccontextmanager
async def held(stack: Observed, *requests: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """They are under way, and have begun to sound, while the block runs; then their callers hang
    up. No other caller asks meanwhile.
    """
    sounded = stack.seen.sounding + len(requests)
    tasks = [asyncio.create_task(request) for request in requests]
    heard = asyncio.create_task(stack.seen.changes.wait_for(lambda: stack.seen.sounding >= sounded))
    try:
        await asyncio.wait((heard, *tasks), timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert heard.done(), "not all of them sound"
        yield
        assert not [task for task in tasks if task.done()], "a stream ended by itself"
    finally:
        for task in (heard, *tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
