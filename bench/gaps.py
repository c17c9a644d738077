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
from collections.abc import Sequence
from typing import cast

import grpc

from bench.load.command_line import add_stack_options, command, user_errors
from bench.load.stack import TEXTS, endpoint, report
from cosyserve.client import AsyncClient
from cosyserve.errors import Overloaded
from cosyserve.load.measurement import Outcome, back_off
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
EXTRA_CALLERS = 20
SETTLED_SECONDS = 30.0


class Callers:
    """Of one server. voices: taken in turn. buffer_seconds: of each player."""

    def __init__(self, client: AsyncClient, voices: Sequence[str], buffer_seconds: float) -> None:
        self._client, self._voices, self._buffer = client, voices, buffer_seconds

    async def ask(self, number: int, outcome: Outcome, text: str | None = None) -> Heard | Exception:
        """One request, heard to its end."""
        texts = [*TEXTS, *REPLIES]
        speech = self._client.synthesize(
            text or texts[number % len(texts)],
            voice=self._voices[number % len(self._voices)],
            seed=number // len(texts),
        )
        answer = await outcome.count(listen(speech, self._buffer))
        if isinstance(answer, Heard):
            for dry in answer.dry:
                report(
                    f"request {number} ran dry for {dry.seconds:.3f} s before piece {dry.piece}, after {dry.at:.2f} s "
                    f"of audio; first sound after {answer.first_sound:.3f} s, {answer.audio:.2f} s in all"
                )
        return answer

    async def at_once(self, streams: int, requests: int) -> Outcome:
        """`streams` callers until `requests` requests are answered; a refused caller waits for the
        retry hint.
        """
        outcome, numbers = Outcome(), iter(range(requests))

        async def asker() -> None:
            for number in numbers:
                await self._ask_until_heard(number, outcome)

        async with asyncio.TaskGroup() as group:
            for _ in range(streams):
                group.create_task(asker())
        return outcome

    async def _ask_until_heard(self, number: int, outcome: Outcome) -> None:
        if isinstance(answer := await self.ask(number, outcome), Overloaded):
            await asyncio.sleep(back_off(answer))
            await self._ask_until_heard(number, outcome)

    async def one_too_many(self, streams: int) -> Outcome:
        """Fill all places with long requests and ask again and again, one caller at a time."""
        long, outcome = Outcome(), Outcome()
        filling = [asyncio.create_task(self.ask(number, long, LONG)) for number in range(streams)]
        try:
            await asyncio.sleep(1.0)
            for number in range(EXTRA_CALLERS):
                await self.ask(number, outcome, TEXTS[0])
        finally:
            for task in filling:
                task.cancel()
            await asyncio.gather(*filling, return_exceptions=True)
        return outcome


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


def row(name: str, streams: int, outcome: Outcome) -> str:
    """A line under HEAD. Raises ValueError when nothing was heard."""
    heard, refused, failed = outcome.heard, len(outcome.refusals), len(outcome.failures)
    if not heard:
        raise ValueError(f"{name}: nothing was heard; {refused} refused, failed: {outcome.failures[:3]}")
    first = sorted(1000 * seconds for seconds in outcome.first_byte)
    return (
        f"{name:11} {streams:7} {len(heard):9} {outcome.underruns:8} {max(one.stalls for one in heard):12.3f} s "
        f"{statistics.median(first):16.0f} {first[int(0.95 * (len(first) - 1))]:10.0f} "
        f"{statistics.median(outcome.real_time_factor):17.3f} {refused:8} {failed:7}"
    )


def extra_row(streams: int, outcome: Outcome) -> str:
    """What the callers beyond the limit received, and how soon."""
    if not outcome.refusals:
        return (
            f"one more    {streams:7}  none was refused: {len(outcome.heard)} were heard, "
            f"{len(outcome.failures)} failed"
        )
    waits = sorted(1000 * refusal.seconds for refusal in outcome.refusals)
    hints = [refusal.retry_after for refusal in outcome.refusals]
    return (
        f"one more    {streams:7}  refused {len(waits)} of {len(waits) + len(outcome.heard)} within "
        f"{statistics.median(waits):.1f} ms (median), {waits[-1]:.1f} ms (longest); asked to come back after "
        f"{min(hints):.1f} to {max(hints):.1f} s"
    )


async def run(options: argparse.Namespace) -> None:
    async with endpoint(options, {}) as address, AsyncClient(address) as client:
        callers = Callers(client, options.voices.split(","), options.buffer_ms / 1000)
        print(HEAD)
        if options.lone:
            print(row("lone", 1, await callers.at_once(1, options.lone)), flush=True)
        # Measured under the load that is meant; the limit is settled when it has been followed for
        # a while.
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


def main(arguments: list[str] | None = None) -> int:
    parser = command("bench.gaps", __doc__)
    add_stack_options(parser, device="cpu")
    parser.add_argument("--server", metavar="HOST:PORT", help="measure this endpoint instead of starting services")
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
    with user_errors("bench.gaps"):
        asyncio.run(run(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
