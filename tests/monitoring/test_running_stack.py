"""Every query, asked of a real Prometheus that scrapes a running stack: what it names is there."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import yaml

from cosyserve.metrics import names
from tests.monitoring.promql import OURS, ROOT, RULES, Query, all_queries, base
from tests.stacks.key_holders import key_holder, keys_of
from tests.stacks.telemetry.prometheus_server import Prometheus, needs_prometheus, prometheus
from tests.stacks.telemetry.scraping import ScrapedStack, scraped_stack
from tests.stacks.up_process import TINY

SCRAPES_SECONDS = 5
NOT_HERE = {
    names.FAILOVERS.prometheus: "no replica fails",
    names.GUARDS.prometheus: "no speech is bad",
    names.REFUSALS.prometheus: "nobody is refused",
    names.ENGINE_RUNG.prometheus: "fake engines are no choice among several",
}
"""Series that begin when what they count happens first, and why it does not here."""
FRESH = ("3d", "6h", "1d")
"""Windows whose rules are evaluated each five minutes."""


@contextlib.asynccontextmanager
async def observed(folder: Path, stack: ScrapedStack) -> AsyncIterator[Prometheus]:
    """A Prometheus with our configuration, but for where it looks and how often."""
    settings = yaml.safe_load((ROOT / "observability" / "prometheus.yaml").read_text(encoding="utf-8"))
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = settings["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in stack.ports.values()]}]
    rules = []
    for path in RULES:
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))
        for group in groups["groups"]:
            group["interval"] = "1s"
        rules.append(folder / path.name)
        rules[-1].write_text(yaml.safe_dump(groups), encoding="utf-8")
    settings["rule_files"] = list(map(str, rules))
    async with prometheus(folder, settings) as server:
        yield server


def needed(query: Query) -> set[str]:
    """The metrics that this stack has to export for the query."""
    return {base(metric) for metric in query.metrics if base(metric) in OURS}


@needs_prometheus
async def test_every_query_finds_what_it_names(tmp_path: Path) -> None:
    caller = key_holder("a-key", tenant="a-tenant")
    async with (
        scraped_stack(TINY, {"COSYSERVE_ORCHESTRATOR_KEYS": keys_of([caller])}, backend="fake") as stack,
        observed(tmp_path, stack) as server,
        httpx2.AsyncClient(base_url=f"http://{stack.stack.http}", timeout=60) as http,
    ):
        for _ in range(2 * SCRAPES_SECONDS):
            speech = {"model": "cosyvoice2", "input": "A sentence. Another one.", "response_format": "pcm"}
            answer = await http.post("/v1/audio/speech", json=speech, headers=caller.headers)
            assert answer.status_code == 200
            await asyncio.sleep(0.5)

        pages = [await asyncio.to_thread(stack.text, service) for service in names.SERVICES]
        typed = {name for page in pages for name in re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE)}
        asked = {name for query in all_queries() for name in needed(query)}
        assert asked <= typed, "what is named in no answer of /metrics"

        known = set((await server.http.get("/api/v1/label/__name__/values")).json()["data"])
        exported = {base(metric) for metric in known}
        without = {name for name in asked if OURS[name].needs is not names.Needs.NOTHING} | set(NOT_HERE)
        assert asked - exported - without == set()

        empty = []
        for query in all_queries():
            found = await server.query(query.plain)
            if not (found or needed(query) & without or _may_be_empty(query)):
                empty.append(query)
        assert empty == []

        exemplars = await server.http.get(
            "/api/v1/query_exemplars",
            params={"query": names.FIRST_BYTE.prometheus + "_bucket", "start": "0", "end": "9999999999"},
        )
        assert exemplars.json()["status"] == "success"


def _may_be_empty(query: Query) -> bool:
    """An alert that does not fire, a comparison that filters, or a rate over windows of days."""
    return any(sign in query.expression for sign in (">", "== 0", "absent", "< ")) or any(
        window in query.place + query.expression for window in FRESH
    )
