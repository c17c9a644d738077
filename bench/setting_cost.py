"""What does a setting cost a request? `python -m bench.setting_cost --set NAME=VALUE [--without
NAME=VALUE] [--pairs 10] [--json FILE]`

Two stacks on this machine: one with the settings of --set, one with those of --without. Each pair
has both speak the same sentences, one after the other, in turns of who begins. The processor time
of all services for a request and the time to its first byte, and the mean of the ratios of the
processor times with its interval of 95 %, so that it holds on a machine that is not quiet. The
callers of the first stack have the key and the certificates of the environment (COSYSERVE_API_KEY,
COSYSERVE_TLS_CA and so on), those of the second have none.

    --set COSYSERVE_ORCHESTRATOR_KEYS_FILE=keys.json
    --set COSYSERVE_ORCHESTRATOR_TLS_CERTIFICATE=a.crt --set COSYSERVE_ORCHESTRATOR_TLS_KEY=a.key
    --without OTEL_SDK_DISABLED=true
"""

import argparse
import asyncio
import contextlib
import itertools
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.load.command_line import command, show
from bench.load.stack import TEXTS, report, room_for
from cosyserve.client import AsyncClient
from cosyserve.commands.terminal.arguments import whole
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from cosyserve.tls.settings import ClientTls

_STREAMS = 2
"""Callers at once."""
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t for a two-sided interval of 95 %, by degrees of freedom from 1; further ones are less
than 2.131.
"""


@dataclass(frozen=True)
class Spent:
    """Milliseconds of a request: processor time of all services, and until its first byte (the
    median).
    """

    cpu: float
    first: float


@dataclass(frozen=True)
class Cost:
    """The means over the pairs, and how many percent more processor time a request takes with the
    settings: the mean, and the ends of its interval.
    """

    pairs: int
    cpu_with: float
    cpu_without: float
    percent: float
    percent_low: float
    percent_high: float
    first_with: float
    first_without: float


@dataclass(frozen=True, eq=False)
class Stack:
    """One of the two."""

    services: LocalDeployment
    client: AsyncClient

    async def speak(self, seeds: Iterable[int]) -> Spent:
        """What the requests with these seeds take."""
        before, firsts, numbers = self._cpu_seconds(), list[float](), iter(seeds)

        async def ask() -> None:
            for seed in numbers:
                begun = time.perf_counter()
                async with self.client.synthesize(TEXTS[seed % len(TEXTS)], seed=seed) as speech:
                    await anext(speech)
                    firsts.append(1000 * (time.perf_counter() - begun))
                    await speech.read()

        await asyncio.gather(*(ask() for _ in range(_STREAMS)))
        return Spent(1000 * (self._cpu_seconds() - before) / len(firsts), statistics.median(firsts))

    def _cpu_seconds(self) -> float:
        """Of all services since they began."""
        return sum(sum(psutil.Process(child.pid).cpu_times()[:2]) for child in self.services.children)


@contextlib.asynccontextmanager
async def stack(
    options: argparse.Namespace, settings: Iterable[tuple[str, str]], key: str | None, tls: ClientTls | None
) -> AsyncIterator[Stack]:
    """The four services that speak. key, tls: of the callers, as in `AsyncClient`."""
    environ = room_for(4 * _STREAMS) | dict(settings)
    async with (
        local_deployment(options.model, backend=options.backend, environ=environ, report=report) as services,
        AsyncClient(services.address, key, tls=tls) as client,
    ):
        yield Stack(services, client)


def cost_of(pairs: Sequence[tuple[Spent, Spent]]) -> Cost:
    """pairs: with the settings, and without; two or more."""
    percents = [100 * (changed.cpu / plain.cpu - 1) for changed, plain in pairs]
    mean, freedom = statistics.mean(percents), len(pairs) - 1
    half = _T[min(freedom, len(_T)) - 1] * statistics.stdev(percents) / len(pairs) ** 0.5
    changed, plain = zip(*pairs, strict=True)
    return Cost(
        len(pairs),
        statistics.mean(one.cpu for one in changed),
        statistics.mean(one.cpu for one in plain),
        mean,
        mean - half,
        mean + half,
        statistics.mean(one.first for one in changed),
        statistics.mean(one.first for one in plain),
    )


async def measured(options: argparse.Namespace) -> Cost:
    """Start both stacks, and measure the pairs."""
    async with (
        stack(options, options.set, None, ClientTls.from_environment()) as changed,
        stack(options, options.without, "", None) as plain,
    ):
        seeds, pairs = itertools.count(), list[tuple[Spent, Spent]]()
        for number in range(-1, options.pairs):
            these = list(itertools.islice(seeds, options.requests))
            order = (changed, plain) if number % 2 else (plain, changed)
            spent = {each: await each.speak(these) for each in order}
            if number >= 0:  # the first requests read voices and fill caches
                pairs.append((spent[changed], spent[plain]))
                report(f"pair {number + 1}: {100 * (spent[changed].cpu / spent[plain].cpu - 1):+.2f} %")
    return cost_of(pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command("bench.setting_cost", __doc__)
    for name, about in (("set", "of the one stack"), ("without", "of the other")):
        parser.add_argument(
            f"--{name}", type=_variable, action="append", default=[], metavar="NAME=VALUE", help=f"{about}; repeatable"
        )
    parser.add_argument("--pairs", type=whole(2, 1000), default=10, help="2 or more (default: %(default)s)")
    parser.add_argument(
        "--requests", type=whole(1, 10_000), default=16, help="of each half of a pair (default: %(default)s)"
    )
    parser.add_argument("--backend", default="torch", help="of the engines (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    return show("bench.setting_cost", lambda: [asyncio.run(measured(options))], options.json)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=value")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
