"""The calling processes of a load: none of them has more to do than a part of a core can."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from bench.field.answer import Answer
from bench.field.arrivals import Schedule
from bench.field.caller import Done, Job
from bench.load.processes import line, started, tell

_LEAD_SECONDS = 0.5
"""Between a job is sent and its load begins."""
DRAIN_SECONDS = 30.0
"""Of a load, from its last request on: what is not complete then has failed, so that a server that
cannot keep up ends the load and not the part.
"""
_REPLY_SECONDS = 30.0
"""Of a calling process, from there on until its figures are here."""


@dataclass(frozen=True)
class Heard:
    """What became of all requests of a load. busy: share of a core of the busiest process."""

    answers: tuple[Answer, ...]
    busy: float


class Callers:
    """Calling processes of one door."""

    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    async def call(self, plan: Schedule, *, any_sample: bool) -> Heard:
        """The requests in turn to each process; DRAIN_SECONDS after the last one the load is over.
        any_sample: as in `Job`. Raises OSError if a process ended or does not say what it heard.
        """
        start, count = time.monotonic() + _LEAD_SECONDS, len(self._processes)
        closes = max((request.at for request in plan.requests), default=0.0) + DRAIN_SECONDS
        jobs = [
            Job(start, plan.begin, plan.end, closes, any_sample, plan.requests[place::count]) for place in range(count)
        ]
        longest = _LEAD_SECONDS + closes + _REPLY_SECONDS
        try:
            async with asyncio.timeout(longest):
                done = await asyncio.gather(*map(_done, self._processes, jobs))
        except TimeoutError:
            raise OSError(f"a calling process did not say what it heard within {longest:.0f} s") from None
        return Heard(tuple(answer for one in done for answer in one.answers), max(one.busy for one in done))


async def _done(process: asyncio.subprocess.Process, job: Job) -> Done:
    await tell(process, str(job))
    fields = json.loads(await line(process))
    return Done(tuple(Answer(**one) for one in fields["answers"]), fields["busy"])


@contextlib.asynccontextmanager
async def callers(kind: str, address: str, count: int) -> AsyncIterator[Callers]:
    """`count` processes that call `address`, a host:port. kind: HTTP or GRPC. Raises OSError if one
    does not start.
    """
    async with started(count, "bench.field.caller", kind, address) as processes:
        yield Callers(processes)
