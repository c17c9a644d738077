"""One calling process: `python -m bench.field.caller DOOR HOST:PORT`. Each line of standard input
is a job in JSON, each line of standard output what became of it.

It does nothing else than send requests when they are due and note when sound arrives; how late it
sent them, and how busy its core was, is part of every result.
"""

import asyncio
import dataclasses
import gc
import json
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from bench.field.answer import FAILED, REFUSED, Answer, Listener
from bench.field.arrivals import Request
from bench.field.doors import LONGEST_SECONDS, Door, door
from bench.load.http_caller import Refused
from cosyserve.errors import CosyserveError, Overloaded


@dataclass(frozen=True)
class Job:
    """start: moment of the system's monotonic clock at which the load begins, the same in all
    calling processes. begin, end: seconds after it between which requests are counted. closes:
    seconds after it at which a request that is not complete has failed. any_sample: the first
    sample counts as audible.
    """

    start: float
    begin: float
    end: float
    closes: float
    any_sample: bool
    requests: tuple[Request, ...]

    @classmethod
    def read(cls, line: str | bytes) -> "Job":
        fields: dict[str, Any] = json.loads(line)
        return cls(**fields | {"requests": tuple(Request(**one) for one in fields["requests"])})

    def __str__(self) -> str:
        return json.dumps(dataclasses.asdict(self))


@dataclass(frozen=True)
class Done:
    """busy: share of a core that this process used from the first counted request to the last
    one.
    """

    answers: tuple[Answer, ...]
    busy: float


async def called(job: Job, asked: Door) -> Done:
    """Send each request when it is due, whatever became of those before it; hear all answers until
    the load closes.
    """
    answers: list[Answer] = []
    used: list[tuple[float, float]] = []
    async with asyncio.TaskGroup() as listening:
        for request in job.requests:
            # A moment that is over already is not skipped.
            await asyncio.sleep(max(0.0, job.start + request.at - time.monotonic()))
            listening.create_task(_heard(request, job, asked, answers))
            if request.counted:
                used.append((time.monotonic(), time.process_time()))
    wall, cpu = (used[-1][place] - used[0][place] for place in (0, 1)) if used else (0.0, 0.0)
    return Done(tuple(answers), cpu / wall if wall else 0.0)


async def _heard(request: Request, job: Job, asked: Door, answers: list[Answer]) -> None:
    due = job.start + request.at
    late = time.monotonic() - due
    left = job.closes - request.at - late
    listener = Listener(request.at, (job.begin, job.end), any_sample=job.any_sample)
    state, reason, hint, spent = "", "", None, dict[str, float]()
    try:
        async with asyncio.timeout(min(LONGEST_SECONDS, left)), aclosing(asked.pieces(request, spent)) as pieces:
            async for piece in pieces:
                listener.arrived(time.monotonic() - due, piece)
    except (Overloaded, Refused) as error:
        state, reason, hint = REFUSED, str(error), error.retry_after
    except TimeoutError:
        state = FAILED
        reason = (
            f"not complete after {LONGEST_SECONDS:g} s"
            if left > LONGEST_SECONDS
            else "not complete when its load closed"
        )
    except (CosyserveError, OSError, EOFError, ValueError) as error:
        state, reason = FAILED, f"{type(error).__name__}: {error}"
    end = time.monotonic() - due
    if state:
        answers.append(Answer(request.number, request.counted, state, late, end, reason=reason, hint=hint))
    else:
        answers.append(listener.answer(request.number, counted=request.counted, late=late, end=end, spent=spent))


async def _serve(kind: str, address: str) -> None:
    async with door(kind, address) as asked:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            done = await called(Job.read(line), asked)
            print(json.dumps(dataclasses.asdict(done)), flush=True)


if __name__ == "__main__":
    # What is imported is never looked at again: a collection over it would delay a request.
    gc.freeze()
    asyncio.run(_serve(*sys.argv[1:]))
