"""Asks a server for the requests of a load, or of a share of it. As a process of its own: `python
-m bench.load.caller HOST:PORT CONNECTIONS [VOICE]`.

Each line of standard input is a share in JSON, each line of standard output what became of it, or
`ALIVE`, once a second. The process ends with its standard input, also in the middle of a load: the
process that asked for it has ended then.
"""

import asyncio
import contextlib
import dataclasses
import gc
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from bench.load.stack import TEXTS
from cosyserve.client import AsyncClient
from cosyserve.load.measurement import Outcome, back_off, closed_loop, poisson
from cosyserve.load.player import listen

ALIVE = b"alive\n"
_ALIVE_SECONDS = 1.0
CLOSED, POISSON, LISTENING = "closed", "poisson", "listening"
TOGETHER = "together"
"""So many requests at once, none after them."""


@dataclass(frozen=True)
class Share:
    """What one caller asks for. start: moment of the system's monotonic clock at which the load
    begins, the same in all processes. first: number of its first request; no two callers have one
    in common. seed: of Poisson arrivals. spoken: seconds of an answer, on average. late: seconds
    after the start at which its first listener begins.
    """

    arrivals: str
    streams: int
    start: float
    first: int = 0
    seconds: float = 0.0
    seed: int = 0
    spoken: float = 0.0
    late: float = 0.0

    @classmethod
    def read(cls, line: str | bytes) -> "Share":
        return cls(**json.loads(line))

    def __str__(self) -> str:
        return json.dumps(dataclasses.asdict(self))


@dataclass(frozen=True)
class Caller:
    """Asks a server; every request has a seed of its own, so that no two are the same work."""

    clients: tuple[AsyncClient, ...]
    voice: str
    count = 1
    """Of processes."""
    lead_seconds = 0.0
    """Between a load is asked for and its start."""

    async def call(self, shares: Sequence[Share]) -> list[Outcome]:
        """What becomes of each, one after the other."""
        return [await self.load(share) for share in shares]

    async def load(self, share: Share) -> Outcome:
        """All requests of `share`; those under way at its end are waited for."""
        outcome, streams, first = Outcome(), share.streams, share.first
        # A moment that is over already is not skipped.
        await asyncio.sleep(max(0.0, share.start + share.late - time.monotonic()))
        if share.arrivals == TOGETHER:
            await asyncio.gather(*(self._ask(first + place, outcome) for place in range(streams)))
        elif share.arrivals == CLOSED:
            await closed_loop(lambda number: self._ask(number, outcome), streams, share.seconds, first)
        elif share.arrivals == LISTENING:
            seconds, spread = share.seconds - share.late, share.spoken
            await closed_loop(
                lambda number: self._ask(number, outcome, out=True), streams, seconds, first, spread=spread
            )
        else:
            rate = streams / share.spoken
            await poisson(
                lambda number: self._ask(number, outcome), rate, share.seconds, share.seed, first, least=streams
            )
        outcome.seconds = time.monotonic() - share.start
        return outcome

    async def _ask(self, number: int, outcome: Outcome, *, out: bool = False) -> None:
        """out: return when the player is at the end, not the answer."""
        client = self.clients[number % len(self.clients)]
        speech = client.synthesize(TEXTS[number % len(TEXTS)], voice=self.voice, seed=number)
        answer = await outcome.count(listen(speech))
        if isinstance(answer, Exception):
            await asyncio.sleep(back_off(answer))
        elif out:
            await asyncio.sleep(answer.left)


@contextlib.asynccontextmanager
async def caller(address: str, connections: int, voice: str) -> AsyncIterator[Caller]:
    """In this process."""
    async with contextlib.AsyncExitStack() as exits:
        clients = [await exits.enter_async_context(AsyncClient(address)) for _ in range(connections)]
        yield Caller(tuple(clients), voice)


def heard(line: bytes) -> Outcome:
    """Of what a calling process printed; it is of the same code."""
    outcome: Outcome = pickle.loads(bytes.fromhex(line.decode()))
    return outcome


def _read(shares: "asyncio.Queue[Share]", loop: asyncio.AbstractEventLoop) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(shares.put_nowait, Share.read(line))
    os._exit(1)


async def _say_alive() -> None:
    while True:
        _say(ALIVE)
        await asyncio.sleep(_ALIVE_SECONDS)


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


async def _serve(address: str, connections: str, voice: str = "") -> None:
    shares: asyncio.Queue[Share] = asyncio.Queue()
    threading.Thread(target=_read, args=(shares, asyncio.get_running_loop()), daemon=True, name="shares").start()
    async with caller(address, int(connections), voice) as one, asyncio.TaskGroup() as group:
        group.create_task(_say_alive())
        while True:
            outcome = await one.load(await shares.get())
            _say(pickle.dumps(outcome).hex().encode() + b"\n")


if __name__ == "__main__":
    # What is imported is never looked at again: a collection over it would delay a request.
    gc.freeze()
    asyncio.run(_serve(*sys.argv[1:]))
