"""What does the orchestrator compute for a message? `python -m bench.orchestrator_cost [--streams
8] [--requests 200] [--rounds 3] [--processes 1] [--json FILE]`

All services on this machine with engines that only make tones, over gRPC, so that hardly anything
but the orchestrator works. The processor time of all its processes, for a request, for a message
that it sends and for a second of sound: it hardly depends on what else the machine does. How much
sound it passes on in a second says something on a machine with cores to spare, with several
processes of callers (--caller-processes) and replicas of each stage (--replicas).
"""

import argparse
import asyncio
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.load.command_line import command, setting, show
from bench.load.stack import TEXTS, report, room_for
from cosyserve.client import AsyncClient
from cosyserve.host.supervision.layout import ORCHESTRATOR, STAGES
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment


@dataclass(frozen=True)
class Cost:
    """Of one round: what was sent, the processor time of the orchestrator in microseconds, how many
    cores it used, and the seconds of sound in a second.
    """

    processes: int
    messages: int
    audio_seconds: float
    microseconds_a_message: float
    microseconds_a_second_of_sound: float
    microseconds_a_request: float
    cores: float
    audio_seconds_a_second: float


@dataclass(frozen=True)
class Load:
    """Of one process of callers."""

    address: str
    connections: int
    streams: int
    requests: int
    first_seed: int


def ask_all(load: Load) -> tuple[int, float]:
    """Messages and seconds of sound of so many requests."""
    return asyncio.run(_ask_all(load))


async def _ask_all(load: Load) -> tuple[int, float]:
    numbers, messages, seconds = iter(range(load.requests)), 0, 0.0
    async with AsyncClient(load.address, connections=load.connections) as client:

        async def ask() -> None:
            nonlocal messages, seconds
            for number in numbers:
                speech = client.synthesize(TEXTS[number % len(TEXTS)], seed=load.first_seed + number)
                async for _ in speech:
                    messages += 1
                seconds += speech.summary.audio_seconds if speech.summary else 0.0

        await client.connect()
        await asyncio.gather(*(ask() for _ in range(load.streams)))
    return messages, seconds


def cpu_seconds(stack: LocalDeployment) -> float:
    """Of the orchestrator since it began, with the processes below it."""
    first = next(child.pid for child in stack.children if child.name == ORCHESTRATOR)
    every = [psutil.Process(first), *psutil.Process(first).children(recursive=True)]
    return sum(sum(each.cpu_times()[:2]) for each in every)


async def measure(
    stack: LocalDeployment, pool: ProcessPoolExecutor, options: argparse.Namespace, requests: int, seed: int
) -> Cost:
    """So many requests of all callers together."""
    each = options.caller_processes
    loads = [
        Load(stack.address, options.connections, options.streams // each, requests // each, seed + number * requests)
        for number in range(each)
    ]
    before, begun, loop = cpu_seconds(stack), time.monotonic(), asyncio.get_running_loop()
    answers = await asyncio.gather(*(loop.run_in_executor(pool, ask_all, load) for load in loads))
    wall, spent = time.monotonic() - begun, cpu_seconds(stack) - before
    messages, seconds = sum(count for count, _ in answers), sum(audio for _, audio in answers)
    return Cost(
        processes=options.processes,
        messages=messages,
        audio_seconds=round(seconds, 1),
        microseconds_a_message=round(1e6 * spent / messages),
        microseconds_a_second_of_sound=round(1e6 * spent / seconds),
        microseconds_a_request=round(1e6 * spent / requests),
        cores=round(spent / wall, 2),
        audio_seconds_a_second=round(seconds / wall, 1),
    )


async def run(options: argparse.Namespace) -> list[Cost]:
    """The rounds after a first one that does not count."""
    environ = room_for(2 * options.streams) | {"COSYSERVE_ORCHESTRATOR_PROCESSES": str(options.processes)}
    async with AsyncExitStack() as exits:
        spawning = multiprocessing.get_context("spawn")
        pool = exits.enter_context(ProcessPoolExecutor(options.caller_processes, mp_context=spawning))
        deployment = local_deployment(
            options.model,
            backend="fake",
            replicas=dict.fromkeys(STAGES, options.replicas),
            environ=environ | dict(options.set),
            report=report,
        )
        stack = await exits.enter_async_context(deployment)
        await measure(stack, pool, options, 2 * options.streams, 0)
        return [
            await measure(stack, pool, options, options.requests, (number + 1) * 1_000_000)
            for number in range(options.rounds)
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command("bench.orchestrator_cost", __doc__)
    for name, default, about in (
        ("streams", 8, "callers at once"),
        ("connections", 4, "of each process of callers"),
        ("requests", 200, "of each round"),
        ("rounds", 3, ""),
        ("processes", 1, "of the orchestrator"),
        ("replicas", 1, "of each stage"),
        ("caller-processes", 1, "among which the callers are divided"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{about} (default: %(default)s)")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="a setting")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    options.model = options.model.resolve()
    return show("bench.orchestrator_cost", lambda: asyncio.run(run(options)), options.json)


if __name__ == "__main__":
    sys.exit(main())
