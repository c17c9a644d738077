"""What does a first sound cost beside the work of the engines? `python -m bench.way [--requests
300] [--rounds 2] [--doors grpc,http] [--json FILE]`

All services on this machine with engines that only make tones, at the pace of a GPU, asked for one
short sentence after the other over gRPC and over HTTP: of the milliseconds until the first sound
all but the paced tokens are those of the calls and of the code around them. In front of them the
floor: what one call of `grpc.aio` takes between two processes that do nothing else. The processor
time of each service is that of whole requests.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.load.command_line import command, setting, user_errors
from bench.load.stack import report, room_for
from bench.parts.part import ResultsFile
from bench.parts.provenance import machine
from bench.reports.tables import columns
from bench.way.first_sounds import WARM_UP, FirstSounds, cpu_milliseconds, over_grpc, over_http
from bench.way.floor import floors
from cosyserve.host.supervision.supervisor import local_deployment

_ENVIRONMENT = {"COSYSERVE_GATEWAY_LOG_LEVEL": "WARNING", "COSYSERVE_ORCHESTRATOR_WORD_ALIGNERS": "0"}
"""Aligners compute for words of sound that was sent, beside what is measured."""
_DOORS = {"grpc": over_grpc, "http": over_http}


async def run(options: argparse.Namespace, results: ResultsFile) -> None:
    """Print each table as soon as it is measured."""
    if options.floor:
        results["floor"] = [asdict(one) for one in await floors(options.floor)]
        print("\n".join(columns(results["floor"])), flush=True)
    pace = {"COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": str(options.token_milliseconds)}
    environ = {**os.environ, **room_for(8), **_ENVIRONMENT, **pace, **dict(options.set)}
    rounds = []
    async with local_deployment(
        options.model, backend="fake", http="127.0.0.1:0", environ=environ, report=report
    ) as stack:
        for _ in range(options.rounds):
            for door in options.doors.split(","):
                before = cpu_milliseconds(stack)
                sounds = await _DOORS[door](stack, options.requests)
                spent = {name: value - before.get(name, 0.0) for name, value in cpu_milliseconds(stack).items()}
                rounds.append(_row(sounds, spent))
                results["rounds"] = rounds
    print("\n".join(columns(rounds)))


def _row(sounds: FirstSounds, cpu: dict[str, float]) -> dict[str, str | float]:
    head: dict[str, str | float] = {
        "door": sounds.door,
        "requests": sounds.requests,
        "p50": sounds.p50,
        "p95": sounds.p95,
    }
    elsewhere = {
        "elsewhere": round(sounds.admitted - sum(sounds.stages.values()), 2) if sounds.stages else 0.0,
        "way": round(sounds.p50 - sounds.admitted, 2) if sounds.stages else 0.0,
    }
    names = ("frontend", "llm_prefill", "llm_decode", "flow", "vocoder")
    stages = {name: sounds.stages.get(name, 0.0) for name in names}
    return (
        head
        | stages
        | elsewhere
        | {f"cpu_{name}": round(ms / (sounds.requests + WARM_UP), 2) for name, ms in cpu.items()}
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command("bench.way", __doc__)
    parser.add_argument("--requests", type=int, default=300, help="of each door and round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--doors", default="grpc,http", metavar="NAMES", help="default: %(default)s")
    parser.add_argument(
        "--token-milliseconds", type=float, default=0.6, help="pace of the speech tokens (default: %(default)s)"
    )
    parser.add_argument("--floor", type=int, default=500, metavar="CALLS", help="0: without (default: %(default)s)")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="a setting")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    options.model = options.model.resolve()
    results = ResultsFile(options.json)
    results["machine"] = machine()
    with user_errors("bench.way"):
        asyncio.run(run(options, results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
