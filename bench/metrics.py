"""What do metrics cost? `python -m bench.metrics [--pairs 10] [--requests 16] [--json FILE]`

Two stacks on this machine with the bundled voice: one whose services serve their metrics, which are
read as by a scraper while it works, and one that counts nothing. Each pair has both speak the same
sentences, one after the other, in turns of who begins. The processor time of all services for a
request, and the mean of the ratios with its interval of 95 %, so that it holds on a machine that is
not quiet.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import urllib.request
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from bench.load.command_line import command, user_errors
from bench.load.stack import TEXTS, report, room_for
from bench.parts.part import ResultsFile
from bench.parts.provenance import machine
from bench.reports.tables import columns
from cosyserve.client import AsyncClient
from cosyserve.host.supervision.layout import free_ports
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from cosyserve.metrics.names import GRPC

MOST_PERCENT = 2.0
_STREAMS = 2
"""Callers at once."""
_OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t for a two-sided interval of 95 %, by degrees of freedom from 1; further ones are less
than 2.131.
"""


@dataclass(frozen=True)
class Pair:
    """CPU milliseconds of all services for a request."""

    counting: float
    without: float

    @property
    def percent(self) -> float:
        """More with metrics than without."""
        return 100 * (self.counting / self.without - 1)


@dataclass(frozen=True)
class Cost:
    """CPU milliseconds for a request, and how many percent more metrics take: the mean over the
    pairs, and the ends of its interval.
    """

    pairs: int
    counting: float
    without: float
    percent: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class MeasuredStack:
    """ports: of the metrics; none if nothing is counted."""

    stack: LocalDeployment
    client: AsyncClient
    ports: Sequence[int]

    def cpu_seconds(self) -> float:
        """Of all services since they began."""
        times = [psutil.Process(child.pid).cpu_times() for child in self.stack.children]
        return sum(each.user + each.system for each in times)

    async def speak(self, first_seed: int, requests: int, every: float) -> float:
        """CPU milliseconds for each of so many requests. every: seconds between two scrapes."""
        scraping = asyncio.create_task(self._scrape(every))
        before, numbers = self.cpu_seconds(), iter(range(requests))

        async def ask() -> None:
            for number in numbers:
                await self.client.synthesize(TEXTS[number % len(TEXTS)], seed=first_seed + number).read()

        try:
            await asyncio.gather(*(ask() for _ in range(_STREAMS)))
            return 1000 * (self.cpu_seconds() - before) / requests
        finally:
            scraping.cancel()
            await asyncio.wait((scraping,))

    async def _scrape(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            for port in self.ports:
                await asyncio.to_thread(_get, port)


def _get(port: int) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"accept": _OPEN_METRICS})
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


@contextlib.asynccontextmanager
async def measured_stack(options: argparse.Namespace, *, counting: bool) -> AsyncIterator[MeasuredStack]:
    """The four services that speak."""
    ports = free_ports(len(GRPC)) if counting else []
    environ = {
        f"COSYSERVE_{service.upper()}_HEALTH_LISTEN": f"127.0.0.1:{port}"
        for service, port in zip(GRPC, ports, strict=False)
    }
    environ |= room_for(4 * _STREAMS) | ({} if counting else {"OTEL_SDK_DISABLED": "true"})
    async with (
        local_deployment(options.model, backend=options.backend, environ=environ, report=report) as stack,
        AsyncClient(stack.address) as client,
    ):
        yield MeasuredStack(stack, client, ports)


def cost_of(pairs: Sequence[Pair]) -> Cost:
    """Raises ValueError for fewer than two pairs."""
    if len(pairs) < 2:
        raise ValueError("an interval needs two pairs or more")
    percents = [pair.percent for pair in pairs]
    mean, freedom = statistics.mean(percents), len(pairs) - 1
    half = _T[min(freedom, len(_T)) - 1] * statistics.stdev(percents) / len(pairs) ** 0.5
    return Cost(
        len(pairs),
        statistics.mean(pair.counting for pair in pairs),
        statistics.mean(pair.without for pair in pairs),
        mean,
        mean - half,
        mean + half,
    )


async def run(options: argparse.Namespace, results: ResultsFile) -> Cost:
    """Start both stacks, and measure the pairs."""
    async with (
        measured_stack(options, counting=True) as counting,
        measured_stack(options, counting=False) as without,
    ):
        for each in (counting, without):  # the first requests read voices and fill caches
            await each.speak(0, 2 * _STREAMS, options.scrape_seconds)
        pairs: list[Pair] = []
        for number in range(options.pairs):
            order = (counting, without) if number % 2 else (without, counting)
            seed = 1 + number * options.requests
            spent = {each: await each.speak(seed, options.requests, options.scrape_seconds) for each in order}
            pairs.append(Pair(spent[counting], spent[without]))
            report(f"pair {number + 1}: {pairs[-1].percent:+.2f} %")
            results["pairs"] = [asdict(pair) for pair in pairs]
    return cost_of(pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if the mean is above 2 %."""
    parser = command("bench.metrics", __doc__)
    parser.add_argument("--pairs", type=int, default=10, help="2 or more (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=16, help="of each half of a pair (default: %(default)s)")
    parser.add_argument("--scrape-seconds", type=float, default=5.0, help="between two scrapes (default: %(default)g)")
    parser.add_argument("--backend", default="torch", help="of the engines (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    options.model = options.model.resolve()
    results = ResultsFile(options.json)
    results["machine"] = machine()
    with user_errors("bench.metrics"):
        cost = asyncio.run(run(options, results))
    results["cost"] = asdict(cost)
    print("\n".join(columns([asdict(cost)])))
    return int(cost.percent > MOST_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
