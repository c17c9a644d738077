"""Does any player run dry, and is one caller too many refused at once? `python -m bench.gaps
[--server HOST:PORT] [--streams N]`

All services on this machine as `cosyserve up` starts them, or the endpoint named by --server, over
gRPC. Three rows: players that ask one after the other, as many at once as are admitted (each asks
again when its answer is complete), and one caller more while all places are taken. A player begins
--buffer-ms after its first sound and has run dry when the next sound is not there in time.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import grpc

from bench.load.stack import TEXTS, setting
from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError, Overloaded
from cosyserve.host.supervision.supervisor import DeploymentFailed, local_deployment
from cosyserve.load.player import Heard, listen
from cosyserve.v1 import info_pb2, info_pb2_grpc

REPLIES = (
    "Yes. No. Maybe.",
    "Sure! What is your order number?",
    "Good morning. How are you today? I can help with that.",
    "Thanks. One moment. I have it here.",
)
"""Short sentences, each of which is spoken by itself."""
LONG = " ".join(TEXTS)
BACK_OFF_SECONDS = 0.2
EXTRA_CALLERS = 20
SETTLED_SECONDS = 30.0


@dataclass
class Tally:
    """What became of requests. refusals: seconds from asking to the status."""

    heard: list[Heard] = field(default_factory=list)
    refusals: list[float] = field(default_factory=list)
    hints: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class Callers:
    """Of one server. voices: taken in turn. buffer_seconds: of each player."""

    def __init__(self, address: str, voices: Sequence[str], buffer_seconds: float) -> None:
        self._client = AsyncClient(address)
        self._voices, self._buffer = voices, buffer_seconds

    async def ask(self, number: int, tally: Tally, text: str | None = None) -> bool:
        """One request, heard to its end; whether it was refused."""
        texts = [*TEXTS, *REPLIES]
        began = time.monotonic()
        said = self._client.synthesize(
            text or texts[number % len(texts)],
            voice=self._voices[number % len(self._voices)],
            seed=number // len(texts),
        )
        try:
            heard = await listen(said, began, self._buffer)
            tally.heard.append(heard)
            for dry in heard.dry:
                _report(
                    f"request {number} ran dry for {dry.seconds:.3f} s before piece {dry.piece}, after {dry.at:.2f} s "
                    "of audio; first "
                    f"sound after {heard.first_sound:.3f} s, {heard.audio:.2f} s in all"
                )
        except Overloaded as error:
            tally.refusals.append(time.monotonic() - began)
            tally.hints.append(error.retry_after or BACK_OFF_SECONDS)
            return True
        except CosyserveError as error:
            tally.failed.append(error.message)
        return False

    async def one_after_the_other(self, requests: int) -> Tally:
        tally = Tally()
        for number in range(requests):
            await self.ask(number, tally)
        return tally

    async def at_once(self, streams: int, requests: int) -> Tally:
        """`streams` callers until `requests` requests are answered; a refused caller waits for the
        retry hint.
        """
        tally, numbers = Tally(), iter(range(requests))

        async def asker() -> None:
            for number in numbers:
                await self._ask_until_heard(number, tally)

        async with asyncio.TaskGroup() as group:
            for _ in range(streams):
                group.create_task(asker())
        return tally

    async def _ask_until_heard(self, number: int, tally: Tally) -> None:
        if await self.ask(number, tally):
            await asyncio.sleep(tally.hints[-1])
            await self._ask_until_heard(number, tally)

    async def one_too_many(self, streams: int) -> Tally:
        """Fill all places with long requests and ask again and again, one caller at a time."""
        long, tally = Tally(), Tally()
        filling = [asyncio.create_task(self.ask(number, long, LONG)) for number in range(streams)]
        try:
            await asyncio.sleep(1.0)
            for number in range(EXTRA_CALLERS):
                await self.ask(number, tally, TEXTS[0])
        finally:
            for task in filling:
                task.cancel()
            await asyncio.gather(*filling, return_exceptions=True)
        return tally

    async def close(self) -> None:
        await self._client.close()


async def admitted(address: str) -> int:
    """How many requests the server takes at once now; 0 when it does not say so."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(channel))
        reply = await stub.GetInfo(info_pb2.GetInfoRequest(), timeout=10)
    return int(reply.info.admitted_streams)


HEAD = (
    "row         streams  requests  ran dry  longest stall  first sound p50     p95 ms  real-time factor  refused  "
    "failed"
)


def row(name: str, streams: int, tally: Tally) -> str:
    """A line under HEAD. Raises ValueError when nothing was heard."""
    if not tally.heard:
        raise ValueError(f"{name}: nothing was heard; {len(tally.refusals)} refused, failed: {tally.failed[:3]}")
    first = sorted(1000 * one.first_sound for one in tally.heard)
    dry, longest = sum(one.gaps > 0 for one in tally.heard), max(one.stalls for one in tally.heard)
    return (
        f"{name:11} {streams:7} {len(tally.heard):9} {dry:8} {longest:12.3f} s {statistics.median(first):16.0f} "
        f"{first[int(0.95 * (len(first) - 1))]:10.0f} "
        f"{statistics.median(one.end / one.audio for one in tally.heard):17.3f} "
        f"{len(tally.refusals):8} {len(tally.failed):7}"
    )


def extra_row(streams: int, tally: Tally) -> str:
    """What the callers beyond the limit received, and how soon."""
    if not tally.refusals:
        return f"one more    {streams:7}  none was refused: {len(tally.heard)} were heard, {len(tally.failed)} failed"
    waits = sorted(1000 * seconds for seconds in tally.refusals)
    return (
        f"one more    {streams:7}  refused {len(waits)} of {len(waits) + len(tally.heard)} within "
        f"{statistics.median(waits):.1f} ms "
        f"(median), {waits[-1]:.1f} ms (longest); asked to come back after {min(tally.hints):.1f} to "
        f"{max(tally.hints):.1f} s"
    )


@contextlib.asynccontextmanager
async def endpoint(options: argparse.Namespace) -> AsyncIterator[str]:
    """The address to ask: of --server, or of services that live as long as the block."""
    if options.server:
        yield options.server
        return
    async with local_deployment(
        options.model, device=options.device, environ=dict(options.set), report=_report
    ) as stack:
        yield stack.address


def _report(line: str) -> None:
    print(line, file=sys.stderr)


async def run(options: argparse.Namespace) -> None:
    async with endpoint(options) as address:
        callers = Callers(address, options.voices.split(","), options.buffer_ms / 1000)
        try:
            print(HEAD)
            if options.lone:
                print(row("lone", 1, await callers.one_after_the_other(options.lone)), flush=True)
            # Measured under the load that is meant; the limit is settled when it has been followed
            # for a while.
            streams = options.streams or await admitted(address) or 1
            if options.requests:
                if not options.streams:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(SETTLED_SECONDS):
                            await callers.at_once(streams, 4 * streams)
                    streams = await admitted(address) or 1
                print(row("admitted", streams, await callers.at_once(streams, options.requests)), flush=True)
            streams = await admitted(address) or streams
            print(extra_row(streams, await callers.one_too_many(streams)), flush=True)
        finally:
            await callers.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gaps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, default=Path("models/demo"), help="model directory (default: %(default)s)"
    )
    parser.add_argument("--server", metavar="HOST:PORT", help="measure this endpoint instead of starting services")
    parser.add_argument("--device", default="cpu", help="device of the engines (default: %(default)s)")
    parser.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of a service; repeatable",
    )
    parser.add_argument("--voices", default="af_heart,am_michael", help="taken in turn (default: %(default)s)")
    parser.add_argument("--buffer-ms", type=float, default=40.0, help="of each player (default: %(default)g)")
    parser.add_argument(
        "--lone", type=int, default=100, help="requests one after the other (default: %(default)s; 0: none)"
    )
    parser.add_argument("--streams", type=int, default=0, help="at once (default: as many as are admitted)")
    parser.add_argument(
        "--requests", type=int, default=200, help="of all streams together (default: %(default)s; 0: none)"
    )
    options = parser.parse_args(arguments)
    try:
        asyncio.run(run(options))
    except (CosyserveError, DeploymentFailed, ValueError, OSError, grpc.RpcError) as error:
        print(f"bench.gaps: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
