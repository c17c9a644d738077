"""What does the orchestrator compute for a message? `python -m bench.orchestrator_cost [--streams
8] [--requests 200] [--rounds 3] [--json FILE]`

All services on this machine with engines that only make tones, over gRPC, so that hardly anything
but the orchestrator works. The processor time of all its processes, for a request, for a message
that it sends and for a second of sound: it hardly depends on what else the machine does.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from bench.load.command_line import command, setting, user_errors
from bench.load.stack import TEXTS, report, room_for
from bench.parts.part import ResultsFile
from bench.parts.provenance import machine
from bench.reports.tables import columns
from cosyserve.client import AsyncClient
from cosyserve.host.supervision.layout import ORCHESTRATOR
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment


@dataclass(frozen=True)
class Cost:
    """Of one round: what was sent, and the processor time of the orchestrator in microseconds."""

    requests: int
    messages: int
    audio_seconds: float
    microseconds_a_message: float
    microseconds_a_second_of_sound: float
    microseconds_a_request: float


def cpu_seconds(stack: LocalDeployment) -> float:
    """Of the orchestrator since it began, with the processes below it."""
    first = next(child.pid for child in stack.children if child.name == ORCHESTRATOR)
    every = [psutil.Process(first), *psutil.Process(first).children(recursive=True)]
    return sum(sum(each.cpu_times()[:2]) for each in every)


async def measure(stack: LocalDeployment, clients: Sequence[AsyncClient], requests: int, streams: int) -> Cost:
    """So many requests, `streams` at once."""
    numbers, messages, seconds = iter(range(requests)), 0, 0.0

    async def ask() -> None:
        nonlocal messages, seconds
        for number in numbers:
            speech = clients[number % len(clients)].synthesize(TEXTS[number % len(TEXTS)], seed=number)
            async for _ in speech:
                messages += 1
            seconds += speech.summary.audio_seconds if speech.summary else 0.0

    before = cpu_seconds(stack)
    await asyncio.gather(*(ask() for _ in range(streams)))
    spent = 1e6 * (cpu_seconds(stack) - before)
    return Cost(
        requests, messages, round(seconds, 1), *(round(spent / count) for count in (messages, seconds, requests))
    )


async def run(options: argparse.Namespace) -> list[Cost]:
    """The rounds after a first one that does not count."""
    environ = room_for(2 * options.streams) | dict(options.set)
    async with AsyncExitStack() as exits:
        deployment = local_deployment(options.model, backend="fake", environ=environ, report=report)
        stack = await exits.enter_async_context(deployment)
        clients = [await exits.enter_async_context(AsyncClient(stack.address)) for _ in range(options.connections)]
        await measure(stack, clients, 2 * options.streams, options.streams)
        return [await measure(stack, clients, options.requests, options.streams) for _ in range(options.rounds)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command("bench.orchestrator_cost", __doc__)
    parser.add_argument("--streams", type=int, default=8, help="callers at once (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=4, help="of the callers (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=200, help="of each round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="a setting")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    options.model = options.model.resolve()
    results = ResultsFile(options.json)
    results["machine"] = machine()
    with user_errors("bench.orchestrator_cost"):
        costs = asyncio.run(run(options))
    results["rounds"] = [asdict(cost) for cost in costs]
    print("\n".join(columns(results["rounds"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
