"""A real Prometheus as a process of its own, and its HTTP API."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from cosyserve.host.supervision.layout import free_ports

PROMETHEUS = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (a package of Debian)")
_PATIENCE = 120.0


class Prometheus:
    """http: a client of it."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def query(self, query: str) -> list[dict[str, Any]]:
        """The vector. Raises AssertionError with what Prometheus says if it refuses the query."""
        answer = (await self.http.get("/api/v1/query", params={"query": query})).json()
        assert answer["status"] == "success", (query, answer)
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    async def values(self, query: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The value of each series, by these labels of it."""
        return {
            tuple(series["metric"].get(label, "") for label in labels): float(series["value"][1])
            for series in await self.query(query)
        }

    async def now(self) -> float:
        """Seconds since the epoch."""
        answer = (await self.http.get("/api/v1/query", params={"query": "time()"})).json()
        return float(answer["data"]["result"][1])

    async def scraped(self, targets: int) -> float:
        """Wait until each of so many targets has been read by a scrape that began after this call;
        returns a moment after these scrapes.
        """
        asked = await self.now()
        async with asyncio.timeout(_PATIENCE):
            while len(await self.query(f"up == 1 and timestamp(up) > {asked}")) < targets:
                await asyncio.sleep(0.2)
        return await self.now()


@contextlib.asynccontextmanager
async def prometheus(folder: Path, settings: Mapping[str, Any]) -> AsyncIterator[Prometheus]:
    """It runs with this configuration while the block does. folder: for its data."""
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(dict(settings)), encoding="utf-8")
    (port,) = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        str(PROMETHEUS),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    )
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            await _ready(http)
            yield Prometheus(http)
    finally:
        process.terminate()
        await process.wait()


async def _ready(http: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if (await http.get("/-/ready")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
