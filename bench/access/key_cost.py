"""What does a key cost a request? `python -m bench.access.key_cost [--requests 500]
[--keys 1,1000,10000] [--json FILE]`

One orchestrator without keys and one for each number of keys stand on this machine in one run,
with engines that only seem to speak; requests go to them in turn. Printed are the milliseconds of a
small call and of an utterance (medians), the processor time of the orchestrator for each, and their
ratios to the one without keys.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from bench.load.command_line import command, user_errors
from bench.load.stack import room_for
from bench.parts.part import ResultsFile
from bench.parts.provenance import machine
from bench.reports.tables import columns
from cosyserve.client import AsyncClient
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.keys.key_record import KeyRecord
from cosyserve.keys.secret import digest, new_secret

_TEXT = "Yes."


@dataclass(frozen=True)
class Cost:
    """Milliseconds; keys: 0 for the orchestrator without."""

    keys: int
    call: float
    call_cpu: float
    utterance: float
    utterance_cpu: float
    call_ratio: float
    utterance_cpu_ratio: float


@dataclass
class Door:
    """One orchestrator."""

    keys: int
    client: AsyncClient
    process: psutil.Process

    def cpu(self) -> float:
        """Milliseconds of the processor that it has taken."""
        times = self.process.cpu_times()
        return 1000 * (times.user + times.system)


async def run(options: argparse.Namespace) -> list[Cost]:
    async with contextlib.AsyncExitStack() as exits:
        doors = []
        for count in (0, *options.keys):
            secrets = [new_secret() for _ in range(count)]
            records = [KeyRecord(f"key{number}", digest(each)).as_dict() for number, each in enumerate(secrets)]
            path = Path(options.directory) / f"keys-{count}.json"
            path.write_text(json.dumps({"keys": records}))
            environ = {**os.environ, **room_for(8)}
            if count:
                environ["COSYSERVE_ORCHESTRATOR_KEYS_FILE"] = str(path.absolute())
            stack = await exits.enter_async_context(local_deployment(options.model, backend="fake", environ=environ))
            client = await exits.enter_async_context(AsyncClient(stack.address, secrets[-1] if secrets else ""))
            pid = next(child.pid for child in stack.children if child.name == "orchestrator")
            doors.append(Door(count, client, psutil.Process(pid)))
        return await _measured(doors, options.requests)


async def _measured(doors: Sequence[Door], requests: int) -> list[Cost]:
    """In rounds of ten requests at each door, so that what else the machine does falls on all."""
    calls: dict[int, list[float]] = {door.keys: [] for door in doors}
    spoken: dict[int, list[float]] = {door.keys: [] for door in doors}
    cpu = {door.keys: [0.0, 0.0] for door in doors}
    for _ in range(max(requests // 10, 1)):
        for door in doors:
            for place, times in enumerate((calls[door.keys], spoken[door.keys])):
                before = door.cpu()
                for _ in range(10):
                    begun = time.perf_counter()
                    if place:
                        await door.client.synthesize(_TEXT).read()
                    else:
                        await door.client.require_access()
                    times.append(1000 * (time.perf_counter() - begun))
                cpu[door.keys][place] += door.cpu() - before
    bare = doors[0].keys
    count = len(calls[bare])
    return [
        Cost(
            door.keys,
            statistics.median(calls[door.keys]),
            cpu[door.keys][0] / count,
            statistics.median(spoken[door.keys]),
            cpu[door.keys][1] / count,
            statistics.median(calls[door.keys]) / statistics.median(calls[bare]),
            cpu[door.keys][1] / max(cpu[bare][1], 1e-9),
        )
        for door in doors
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0: it only measures."""
    parser = command("bench.access.key_cost", __doc__)
    parser.add_argument("--requests", type=int, default=500, help="of each kind and door (default: %(default)s)")
    parser.add_argument(
        "--keys", type=_numbers, default=(1, 1_000, 10_000), metavar="N,N", help="(default: 1,1000,10000)"
    )
    parser.add_argument("--directory", default="build", help="where the keys files go (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    Path(options.directory).mkdir(parents=True, exist_ok=True)
    with user_errors("bench.access.key_cost"):
        costs = asyncio.run(run(options))
    print("\n".join(columns([asdict(cost) for cost in costs])))
    results = ResultsFile(options.json)
    results["machine"] = machine()
    results["costs"] = [asdict(cost) for cost in costs]
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
