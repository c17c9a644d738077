"""A load that several processes ask for together: what each of them asks, and their outcomes as
one.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import time
from collections.abc import AsyncIterator, Sequence

from bench.load.caller import ALIVE, LISTENING, Caller, Share, caller, heard
from bench.load.processes import line, started, tell
from cosyserve.load.measurement import Outcome

_SILENT_SECONDS = 60.0
"""A process that says nothing for so long, not even that it is alive, is given up."""
_NUMBERS = 10_000_000
"""Requests that one process may ask for."""


def shares(whole: Share, count: int) -> list[Share]:
    """`whole` for `count` processes: streams that differ by one at most, requests and arrivals of
    their own. Together they begin with the texts with which one process would, and their listeners
    come one after the other as its would.
    """
    streams = [(whole.streams + place) // count for place in reversed(range(count))]
    before = itertools.accumulate(streams, initial=0)
    return [
        dataclasses.replace(
            whole,
            streams=mine,
            first=whole.first + place * _NUMBERS + taken,
            seed=whole.seed + place * _NUMBERS,
            late=whole.spoken * place / whole.streams if whole.arrivals == LISTENING else 0.0,
        )
        for place, (mine, taken) in enumerate(zip(streams, before, strict=False))
    ]


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """As one process would have counted them: they began together, the last one ends the load."""
    return Outcome(
        heard=[each for one in outcomes for each in one.heard],
        refusals=[each for one in outcomes for each in one.refusals],
        failures=[each for one in outcomes for each in one.failures],
        seconds=max(one.seconds for one in outcomes),
    )


class Callers:
    """Calling processes."""

    lead_seconds = 0.5

    def __init__(self, processes: Sequence[asyncio.subprocess.Process]) -> None:
        self._processes = processes
        self.count = len(processes)

    async def call(self, parts: Sequence[Share]) -> list[Outcome]:
        """What becomes of each part in a process of its own. Raises OSError if a process ends or
        says nothing for `_SILENT_SECONDS`.
        """
        return list(await asyncio.gather(*map(self._call, self._processes, parts)))

    async def _call(self, process: asyncio.subprocess.Process, share: Share) -> Outcome:
        await tell(process, str(share))
        while True:
            try:
                async with asyncio.timeout(_SILENT_SECONDS):
                    printed = await line(process)
            except TimeoutError:
                raise OSError(f"a calling process said nothing for {_SILENT_SECONDS:g} s") from None
            if printed != ALIVE:
                return heard(printed)


@contextlib.asynccontextmanager
async def callers(count: int, address: str, connections: int, voice: str) -> AsyncIterator[Caller | Callers]:
    """`count` processes, each with so many connections; of one it is this process. Raises OSError
    if one does not start.
    """
    if count == 1:
        async with caller(address, connections, voice) as one:
            yield one
    else:
        async with started(count, "bench.load.caller", address, str(connections), voice) as processes:
            yield Callers(processes)


async def ask(
    askers: Caller | Callers, arrivals: str, streams: int, first: int, seconds: float = 0.0, spoken: float = 0.0
) -> Outcome:
    """One load, by all of them. first, spoken: as in `Share`."""
    start = time.monotonic() + askers.lead_seconds
    whole = Share(arrivals, streams, start, first, seconds, seed=streams, spoken=spoken)
    return merged(await askers.call(shares(whole, askers.count)))
