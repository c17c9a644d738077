"""What do TLS and client certificates cost? `python -m bench.tls [--streams 8] [--seconds 30]
[--json FILE]`

Three stacks on this machine, with engines that only seem to speak at a given pace: in plaintext,
with TLS, and with TLS and client certificates on every port. Callers ask them in turn in one run,
over kept connections and over new ones, so that the ratios hold on a machine that is not quiet.
"""

import argparse
import asyncio
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.load.command_line import command, user_errors
from bench.load.stack import TEXTS
from bench.parts.part import ResultsFile
from bench.parts.provenance import machine
from bench.reports.tables import columns
from bench.tls.stacks import WAYS, BenchStack, stack
from cosyserve.client import AsyncClient

_WARM_REQUESTS = 4
"""Of each caller and stack, not counted: the first ones read voices and fill caches."""
_NEW_CONNECTION_EVERY = 4


@dataclass
class Kept:
    """Milliseconds until the first byte, of one stack."""

    kept: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    """The same with the time for a new connection."""


@dataclass(frozen=True)
class Cost:
    """One way of being called; milliseconds, and ratios to plaintext."""

    way: str
    requests: int
    first_p50: float
    first_p95: float
    first_ratio: float
    new_connection_p50: float
    cpu_per_request: float
    """Processor time of all services."""
    cpu_ratio: float


async def measured(stacks: Sequence[BenchStack], streams: int, seconds: float) -> list[Cost]:
    """The cost of each, the first one being that to which the ratios are."""
    times = {each.way: Kept() for each in stacks}
    requests = dict.fromkeys(times, 0)
    async with contextlib.AsyncExitStack() as exits:
        clients = {
            each.way: await exits.enter_async_context(AsyncClient(each.address, tls=each.tls)) for each in stacks
        }

        async def ask(each: BenchStack, number: int) -> None:
            text, begin = TEXTS[number % len(TEXTS)], time.perf_counter()
            requests[each.way] += 1
            if number % _NEW_CONNECTION_EVERY:
                times[each.way].kept.append(await _first(clients[each.way], text, number, begin))
                return
            async with AsyncClient(each.address, tls=each.tls) as client:
                times[each.way].fresh.append(await _first(client, text, number, begin))

        async def asking(caller: int) -> None:
            for number in itertools.count():
                # Each caller begins its round at another stack.
                for place in range(len(stacks)):
                    await ask(stacks[(caller + place) % len(stacks)], caller + number)
                if number + 1 >= _WARM_REQUESTS and time.monotonic() > until:
                    return

        until = 0.0
        await asyncio.gather(*map(asking, range(streams)))
        for way in times:
            times[way], requests[way] = Kept(), 0
        before = {each.way: each.cpu_seconds() for each in stacks}
        until = time.monotonic() + seconds
        await asyncio.gather(*map(asking, range(streams)))
        spent = {each.way: 1000 * (each.cpu_seconds() - before[each.way]) / requests[each.way] for each in stacks}
    base = stacks[0].way
    return [_cost(way, kept, requests[way], spent[way], times[base], spent[base]) for way, kept in times.items()]


async def _first(client: AsyncClient, text: str, seed: int, begin: float) -> float:
    async with client.synthesize(text, seed=seed) as speech:
        await anext(speech)
        first = 1000 * (time.perf_counter() - begin)
        await speech.read()
    return first


def _cost(way: str, own: Kept, requests: int, spent: float, base: Kept, base_spent: float) -> Cost:
    if min(len(own.kept), len(own.fresh)) < 2:
        raise ValueError(f"too few answers of {way}; take more --seconds")
    first = statistics.median(own.kept)
    return Cost(
        way,
        requests,
        first,
        statistics.quantiles(own.kept, n=20, method="inclusive")[-1],
        first / statistics.median(base.kept),
        statistics.median(own.fresh),
        spent,
        spent / base_spent,
    )


async def run(options: argparse.Namespace) -> list[Cost]:
    """Start the stacks, and measure."""
    with tempfile.TemporaryDirectory(prefix="cosyserve-") as folder:
        async with contextlib.AsyncExitStack() as exits:
            stacks = [
                await exits.enter_async_context(
                    stack(way, options.model, Path(folder) / way, 2 * options.streams, options.token_milliseconds)
                )
                for way in WAYS
            ]
            return await measured(stacks, options.streams, options.seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command("bench.tls", __doc__)
    parser.add_argument("--streams", type=int, default=8, help="callers at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of measurement (default: %(default)g)")
    parser.add_argument(
        "--token-milliseconds", type=float, default=2.0, help="for a speech token of the fake (default: %(default)g)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    options.model = options.model.resolve()
    with user_errors("bench.tls"):
        costs = asyncio.run(run(options))
    results = ResultsFile(options.json)
    results["machine"] = machine()
    results["costs"] = [asdict(cost) for cost in costs]
    print("\n".join(columns([asdict(cost) for cost in costs])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
