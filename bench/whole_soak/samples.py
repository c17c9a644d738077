"""What every process holds at a moment: memory, descriptors, threads, tasks of its event loop; and
a drawing of it over time.
"""

import asyncio
import contextlib
import http.client
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from bench.whole_soak.up import UP, Up
from cosyserve.metrics import names
from tools.panels import Line, Panel, drawing

MEASURES = {
    "megabytes": "resident memory, MB", "descriptors": "descriptors", "threads": "threads",
    "tasks": "tasks of the event loop",
}  # fmt: skip
"""With their titles in the drawing."""
_MOST_POINTS = 120
"""Of the drawing."""
_SCRAPE_SECONDS = 120.0
_SCRAPES = 20
_SETTLE_LOOKS = 5
_SETTLE_SECONDS = 1.0
_IDLE_SECONDS = 900.0
_NUMBER = r"^{name}{{.*}} (\S+)$"


@dataclass(frozen=True)
class Held:
    """Of one process. megabytes: resident. tasks: None of the supervisor, which exports none.
    active: requests that it answers.
    """

    megabytes: float
    descriptors: int
    threads: int
    tasks: int | None
    active: int


@dataclass(frozen=True)
class Sample:
    """second: since the soak began. requests: that were over by then."""

    second: float
    requests: int
    held: Mapping[str, Held]


class Watch:
    """Takes samples of the processes that there were when it was made."""

    def __init__(self, up: Up) -> None:
        self._up = up
        self._processes = up.processes()
        self._began = time.monotonic()

    @property
    def names(self) -> list[str]:
        return list(self._processes)

    def restarted(self) -> list[str]:
        """Processes that ended meanwhile."""
        now = {process.pid for process in self._up.processes().values()}
        return [name for name, process in self._processes.items() if process.pid not in now]

    async def sample(self, requests: int) -> Sample:
        """Every process now, and its metrics as a scraper reads them."""
        second = time.monotonic() - self._began
        held = {}
        for name, process in self._processes.items():
            page = "" if name == UP else await asyncio.to_thread(_scraped, self._up.output.ports[name])
            with contextlib.suppress(psutil.NoSuchProcess):
                held[name] = _held(process, page)
        return Sample(second, requests, held)

    async def idle(self, requests: int) -> Sample:
        """The least of every measure over some seconds, once no request is under way. Raises
        TimeoutError if one is for a quarter of an hour.
        """
        async with asyncio.timeout(_IDLE_SECONDS):
            while any(held.active for held in (await self.sample(requests)).held.values()):  # noqa: ASYNC110
                await asyncio.sleep(_SETTLE_SECONDS)
        looks = []
        for _ in range(_SETTLE_LOOKS):
            await asyncio.sleep(_SETTLE_SECONDS)
            looks.append(await self.sample(requests))
        return Sample(looks[-1].second, requests, {name: _least(looks, name) for name in looks[-1].held})


def _least(looks: Sequence[Sample], name: str) -> Held:
    these = [look.held[name] for look in looks]
    tasks = [held.tasks for held in these if held.tasks is not None]
    return Held(
        min(held.megabytes for held in these),
        min(held.descriptors for held in these),
        min(held.threads for held in these),
        min(tasks) if tasks else None,
        0,
    )


def _held(process: psutil.Process, page: str) -> Held:
    tasks = _number(page, names.TASKS)
    return Held(
        process.memory_info().rss / (1 << 20),
        process.num_fds(),
        process.num_threads(),
        None if tasks is None else int(tasks),
        int(_number(page, names.STREAMS_ACTIVE) or 0),
    )


def _number(page: str, metric: names.Metric) -> float | None:
    found = re.search(_NUMBER.format(name=metric.prometheus), page, re.MULTILINE)
    return None if found is None else float(found[1])


def _scraped(port: int) -> str:
    """Asked again where a busy machine let the service's five seconds pass; empty in the end."""
    for _ in range(_SCRAPES):
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_SCRAPE_SECONDS) as answer,
        ):
            return str(answer.read().decode())
    return ""


def svg(title: str, samples: Sequence[Sample]) -> str:
    """The drawing. Raises ValueError without samples."""
    drawn = samples[:: -(-len(samples) // _MOST_POINTS) or 1]
    processes = [name for name in (drawn[0].held if drawn else ()) if all(name in one.held for one in drawn)]
    panels = [
        Panel(heading, [Line(name, [getattr(one.held[name], measure) for one in drawn]) for name in processes])
        for measure, heading in MEASURES.items()
    ]
    panels.append(Panel("requests that are over", [Line("all", [one.requests for one in drawn])]))
    return drawing(title, [one.second for one in drawn], panels)
