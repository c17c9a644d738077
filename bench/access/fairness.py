"""Does a key with many clients keep one with few waiting? `python -m bench.access.fairness
[--many 50] [--few 2] [--places 8] [--seconds 60] [--json FILE]`

All services on this machine with engines that only seem to speak, at a given pace. First the few
clients are alone, then beside the many; each asks again after a pause when its speech has ended,
and comes back when the server said so if it was refused. What counts is the time to the first
sound, counted from the attempt that was served: refused attempts are counted apart. token2wav holds no first piece, which it otherwise
does for longer the more streams there are, whichever key they have.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.load.command_line import command, user_errors
from bench.load.stack import TEXTS, report, room_for
from bench.parts.part import ResultsFile
from bench.parts.provenance import machine
from bench.reports.tables import columns
from cosyserve.client import AsyncClient
from cosyserve.errors import Overloaded
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.keys.key_record import KeyRecord
from cosyserve.keys.secret import digest, new_secret

MOST_TIMES = 1.5
"""Allowed time to the first sound of the few beside the many, in times of that alone."""
_PAUSE_SECONDS = 4.0


@dataclass
class Heard:
    """Of one key. firsts: seconds to the first sound of each request."""

    firsts: list[float] = field(default_factory=list)
    asked: int = 0
    spoken: int = 0
    refused: int = 0


@dataclass(frozen=True)
class Row:
    """milliseconds to the first sound."""

    key: str
    beside: str
    requests: int
    spoken: int
    refused: int
    first_p50: float
    first_p95: float


async def client(caller: AsyncClient, number: int, pause: float, until: float, heard: Heard) -> None:
    """One client until its time is over; the request that has begun is spoken to its end."""
    draws = random.Random(number)
    await asyncio.sleep(draws.uniform(0, 2))
    while time.monotonic() < until:
        heard.asked += 1
        served = False
        while not served:
            begun = time.perf_counter()
            try:
                async with caller.synthesize(TEXTS[heard.asked % len(TEXTS)], seed=heard.asked) as speech:
                    await anext(speech)
                    heard.firsts.append(time.perf_counter() - begun)
                    await speech.read()
                served = True
                heard.spoken += 1
            except Overloaded as error:
                heard.refused += 1
                await asyncio.sleep(error.retry_after or 1.0)
        await asyncio.sleep(draws.uniform(0, pause))


async def run(options: argparse.Namespace) -> list[Row]:
    secrets = {"few": new_secret(), "many": new_secret()}
    keys = json.dumps({"keys": [KeyRecord(name, digest(secret)).as_dict() for name, secret in secrets.items()]})
    environ = {
        **os.environ,
        **room_for(options.places),
        "COSYSERVE_TOKEN2WAV_HOLD_SECONDS": "0",
        "COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": str(options.token_milliseconds),
        "COSYSERVE_ORCHESTRATOR_KEYS": keys,
    }
    rows = []
    async with (
        local_deployment(options.model, backend="fake", environ=environ, report=report) as stack,
        AsyncClient(stack.address, "") as door,
    ):
        for beside in (0, options.many):
            until = time.monotonic() + options.seconds
            heard = {name: Heard() for name in secrets}
            async with asyncio.TaskGroup() as group:
                for name, count, pause in (("few", options.few, _PAUSE_SECONDS), ("many", beside, 0.0)):
                    caller = door.with_key(secrets[name])
                    for number in range(count):
                        group.create_task(client(caller, number, pause, until, heard[name]))
            rows += [_row(name, f"{beside} clients", one) for name, one in heard.items() if len(one.firsts) > 1]
            print("\n".join(columns([asdict(row) for row in rows])), flush=True)
    return rows


def _row(name: str, beside: str, heard: Heard) -> Row:
    firsts = [1000 * first for first in heard.firsts]
    p95 = statistics.quantiles(firsts, n=20, method="inclusive")[-1]
    return Row(name, beside, heard.asked, heard.spoken, heard.refused, statistics.median(firsts), p95)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if the few wait longer than is allowed, or a request was never spoken."""
    parser = command("bench.access.fairness", __doc__)
    parser.add_argument("--many", type=int, default=50, help="clients of the one key (default: %(default)s)")
    parser.add_argument("--few", type=int, default=2, help="clients of the other key (default: %(default)s)")
    parser.add_argument("--places", type=int, default=8, help="requests at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load (default: %(default)s)")
    parser.add_argument(
        "--token-milliseconds",
        type=float,
        default=10.0,
        help="pace of the engines; a token is 40 ms of sound (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    with user_errors("bench.access.fairness"):
        rows = asyncio.run(run(options))
    results = ResultsFile(options.json)
    results["machine"] = machine()
    results["rows"] = [asdict(row) for row in rows]
    alone, beside = (row for row in rows if row.key == "few")
    times = beside.first_p50 / alone.first_p50
    lost = sum(row.requests - row.spoken for row in rows)
    print(f"first sound of the few: {times:.2f} times that alone (allowed {MOST_TIMES}); {lost} requests lost")
    return 0 if times <= MOST_TIMES and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
