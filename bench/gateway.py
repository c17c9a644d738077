"""What does HTTP cost on top of gRPC? `python -m bench.gateway [--streams 1,64] [--seconds 30]
[--json FILE]`

All services on this machine with engines that only seem to speak, at a given pace, so that the
serving is measured and not the speech. Callers ask over gRPC and over HTTP in turn, in one run; at
each moment half of them do the one. Then each format by itself: how much later its first bytes are
than pcm's, and what a second of its audio costs the gateway's processor.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from bench.load.command_line import command, user_errors
from bench.load.http_caller import HttpCaller
from bench.load.stack import TEXTS, report, room_for
from bench.parts.part import ResultsFile
from bench.parts.provenance import machine
from bench.reports.tables import columns
from cosyserve.client import AsyncClient
from cosyserve.commands.terminal.arguments import numbers
from cosyserve.errors import CosyserveError
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment

FORMATS = ("pcm", "wav", "opus", "flac", "mp3", "aac")
MOST_MEDIAN_MILLISECONDS = 2.0
"""Allowed on top of gRPC until the first byte, of one stream."""
MOST_P95_MILLISECONDS = 5.0
"""The same of more streams, at the 95th percentile."""


@dataclass
class Firsts:
    """Milliseconds until the first byte."""

    grpc: list[float] = field(default_factory=list)
    http: list[float] = field(default_factory=list)
    failed: int = 0


@dataclass(frozen=True)
class Added:
    """Milliseconds until the first byte at one load, of both ways, and what HTTP adds."""

    streams: int
    requests: int
    failed: int
    grpc_p50: float
    http_p50: float
    added_p50: float
    grpc_p95: float
    http_p95: float
    added_p95: float

    @property
    def held(self) -> bool:
        """Whether what is added is allowed."""
        if self.streams == 1:
            return self.added_p50 <= MOST_MEDIAN_MILLISECONDS
        return self.added_p95 <= MOST_P95_MILLISECONDS


@dataclass(frozen=True)
class FormatCost:
    """One format at one stream: first bytes against pcm's in milliseconds, and processor time of
    the gateway in milliseconds for a second of audio.
    """

    format: str
    first_p50: float
    after_pcm: float
    cpu_per_audio_second: float


async def compared(stack: LocalDeployment, streams: int, seconds: float) -> Added:
    """One load."""
    firsts, begun = Firsts(), time.monotonic()
    assert stack.http is not None
    async with AsyncClient(stack.address) as client, contextlib.AsyncExitStack() as held:
        callers = [await held.enter_async_context(HttpCaller(stack.http)) for _ in range(streams)]

        async def ask(place: int) -> None:
            number, warm = place, time.monotonic() + 2.0
            # One after the other, as listeners come.
            await asyncio.sleep(2.0 * place / streams)
            while time.monotonic() - begun < seconds + 2.0:
                text, seed = TEXTS[number // 2 % len(TEXTS)], number // 2
                number += 1
                try:
                    if number % 2:
                        first, kept = (await callers[place].speak(text, "pcm", seed)).first, firsts.http
                    else:
                        first, kept = await _over_grpc(client, text, seed), firsts.grpc
                except (CosyserveError, EOFError, OSError, ValueError) as error:
                    firsts.failed += 1
                    print(f"failed: {error}", file=sys.stderr)
                    await asyncio.sleep(1.0)
                    continue
                if time.monotonic() > warm:
                    kept.append(1000 * first)

        await asyncio.gather(*map(ask, range(streams)))
    return _added(streams, firsts)


async def _over_grpc(client: AsyncClient, text: str, seed: int) -> float:
    begin = time.perf_counter()
    async with client.synthesize(text, seed=seed) as speech:
        await anext(speech)
        first = time.perf_counter() - begin
        await speech.read()
    return first


def _added(streams: int, firsts: Firsts) -> Added:
    if min(len(firsts.grpc), len(firsts.http)) < 2:
        raise ValueError(f"too few answers at {streams} streams; take more --seconds")
    grpc_p50, http_p50 = statistics.median(firsts.grpc), statistics.median(firsts.http)
    grpc_p95, http_p95 = (
        statistics.quantiles(each, n=20, method="inclusive")[-1] for each in (firsts.grpc, firsts.http)
    )
    return Added(
        streams,
        len(firsts.grpc) + len(firsts.http),
        firsts.failed,
        grpc_p50,
        http_p50,
        http_p50 - grpc_p50,
        grpc_p95,
        http_p95,
        http_p95 - grpc_p95,
    )


async def formats(stack: LocalDeployment, requests: int) -> list[FormatCost]:
    """Each format in turn, `requests` of each."""
    assert stack.http is not None
    gateway = psutil.Process(next(child.pid for child in stack.children if child.name == "gateway"))
    firsts: dict[str, list[float]] = {name: [] for name in FORMATS}
    cpu = dict.fromkeys(FORMATS, 0.0)
    audio = dict.fromkeys(FORMATS, 0.0)
    async with HttpCaller(stack.http) as caller:
        for number in range(-1, requests):
            text = TEXTS[number % len(TEXTS)]
            seconds = (await caller.speak(text, "pcm", number + 1)).size / 48_000
            for name in FORMATS:
                before = gateway.cpu_times()
                answer = await caller.speak(text, name, number + 1)
                after = gateway.cpu_times()
                if number >= 0:  # the first one loads the codecs
                    firsts[name].append(1000 * answer.first)
                    cpu[name] += after.user + after.system - before.user - before.system
                    audio[name] += seconds
    medians = {name: statistics.median(values) for name, values in firsts.items()}
    return [
        FormatCost(name, medians[name], medians[name] - medians["pcm"], 1000 * cpu[name] / audio[name])
        for name in FORMATS
    ]


async def run(options: argparse.Namespace) -> tuple[list[Added], list[FormatCost]]:
    """Print each table as soon as it is measured."""
    pace = {
        "COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": str(options.token_milliseconds),
        "COSYSERVE_GATEWAY_LOG_LEVEL": "WARNING",
    }
    environ = {**os.environ, **room_for(2 * max(options.streams) + 8), **pace}
    async with local_deployment(
        options.model, backend="fake", http="127.0.0.1:0", environ=environ, report=report, log=_show_trouble
    ) as stack:
        loads = [await compared(stack, streams, options.seconds) for streams in options.streams]
        print("\n".join(columns([asdict(load) for load in loads])))
        costs = await formats(stack, options.requests)
        print("\n".join(columns([asdict(cost) for cost in costs])))
    return loads, costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if HTTP adds more than is allowed."""
    parser = command("bench.gateway", __doc__)
    parser.add_argument(
        "--streams", type=numbers(1, 65_536), default=(1, 64), metavar="N,N", help="callers at once (default: 1,64)"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=20, help="of each format (default: %(default)s)")
    parser.add_argument(
        "--token-milliseconds",
        type=float,
        default=10.0,
        help="pace of the engines; a token is 40 ms of sound (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    with user_errors("bench.gateway"):
        loads, costs = asyncio.run(run(options))
    results = ResultsFile(options.json)
    results["machine"] = machine()
    results["first_byte"] = [asdict(load) for load in loads]
    results["formats"] = [asdict(cost) for cost in costs]
    for load in loads:
        if not load.held:
            print(f"{load.streams} streams: HTTP adds {load.added_p50:.1f} ms (median), {load.added_p95:.1f} ms (p95)")
    return 0 if all(load.held for load in loads) else 1


def _show_trouble(line: str) -> None:
    if " WARNING " in line or " ERROR " in line:
        report(line)


if __name__ == "__main__":
    sys.exit(main())
