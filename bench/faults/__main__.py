"""What do listeners hear of faults? `python -m bench.faults [--scenario table|rolling|scaling]
[--seconds 600] [--backend fake|torch]`

Frontends, llm, token2wav, orchestrators and gateways as processes behind DNS names (by default 2,
2, 3, 2 and 1), and listeners that come by chance, half through our client, half over HTTP.

table: one replica of each service in turn is killed (SIGKILL, and started again at its address),
frozen (SIGSTOP for 10 s), delayed (a TCP proxy, 50 and 300 ms in each direction), rolled (its
replacement first, then out of the name, SIGTERM, drain), and one is added and removed.
rolling: every replica of every service is replaced, one after the other.
scaling: each service goes from one replica to three and back to one.

In each case every request has to be complete and identical to what is heard without faults; the
longest time for which a player that keeps 40 ms is dry is shown. One exception is counted by
itself: listeners over HTTP whose own gateway is killed.

Prints a table in Markdown. Exit status 1 when a request was lost or sounded otherwise.
"""

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from bench.faults.cluster import SERVICES, cluster, variables
from bench.faults.listeners import Load
from bench.faults.scenarios import COUNTS, SCENARIOS, Course
from bench.faults.strikes import STRIKES
from bench.faults.table import Row, as_dicts, markdown
from bench.load.command_line import command, setting, user_errors
from bench.load.stack import TEXTS, report
from bench.parts.part import ResultsFile
from cosyserve.client import AsyncClient
from cosyserve.host.supervision.layout import ORCHESTRATOR

PACED = {
    "COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": "8",
    "COSYSERVE_TOKEN2WAV_FAKE_TOKEN_SECONDS": "0.0005",
}
"""The fake speech-token model makes a second of speech in 0.2 s, the fake token2wav in 0.0125 s:
about as long as the bundled voice takes on two cores.
"""
ROOM = {
    "COSYSERVE_ORCHESTRATOR_ADAPTIVE_LIMIT": "off",
    "COSYSERVE_ORCHESTRATOR_MAX_STREAMS": "64",
    "COSYSERVE_TOKEN2WAV_MAX_STREAMS": "64",
    "COSYSERVE_LLM_MAX_SEQUENCES": "64",
}
"""Faults are measured here and not limits: what one replica of a stage is left with must be
admitted.
"""
RATES = {"fake": 2.5, "torch": 0.2}
"""Requests in a second, at most half of what the replicas can speak on two cores."""
ONE_REPLICA = 0.4
"""Share of that rate for the scenario that begins with one replica of each service."""


async def measure(options: argparse.Namespace) -> list[Row]:
    """The rows of the scenario."""
    environ = variables(options.backend, {**PACED, **ROOM, **dict(options.set)})
    replicas = {**COUNTS[options.scenario], **dict(options.replicas)}
    texts = [" ".join(pair) for pair in zip(TEXTS[::2], TEXTS[1::2], strict=True)]
    with contextlib.ExitStack() as files:
        output = files.enter_context(options.log.open("w")) if options.log else None

        def log(line: str) -> None:
            if output is not None:
                output.write(line + "\n")

        async with cluster(options.model, replicas, environ, log) as services:
            report(f"{sum(replicas.values())} processes serve")
            async with AsyncClient(services.target(ORCHESTRATOR)) as client:
                load = Load(client, lambda: services.addresses("gateway"))
                await load.learn(texts, range(options.seeds))
                report(f"{len(load.speeches)} speeches are known")
                course = Course(services, load, report)
                share = ONE_REPLICA if options.scenario == "scaling" else 1.0
                async with load.arriving(options.rate or share * RATES[options.backend]):
                    await SCENARIOS[options.scenario](course, options)
                return course.rows()


def _replicas(text: str) -> tuple[str, int]:
    service, _, count = text.partition("=")
    if service not in SERVICES or not count.isdecimal() or int(count) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not SERVICE=COUNT with one of {', '.join(SERVICES)}")
    return service, int(count)


def main(arguments: list[str] | None = None) -> int:
    parser = command("bench.faults", __doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, default="table", help="(default: %(default)s)")
    parser.add_argument("--backend", choices=RATES, default="fake", help="of both engines (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=600.0, help="of the table, at least (default: %(default)g)")
    parser.add_argument(
        "--rate",
        type=float,
        help=f"requests in a second (default: {RATES['fake']:g}, with torch {RATES['torch']:g}; scaling: less)",
    )
    parser.add_argument("--only", choices=SERVICES, nargs="+", default=SERVICES, help="these services")
    parser.add_argument("--faults", choices=tuple(STRIKES), nargs="+", default=tuple(STRIKES), help="these faults")
    parser.add_argument(
        "--replicas",
        type=_replicas,
        action="append",
        default=[],
        metavar="SERVICE=COUNT",
        help="of a service at the start; repeatable",
    )
    parser.add_argument(
        "--under-way", type=int, default=4, help="requests for which a fault of the table waits (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=2, help="of each text (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows go as well")
    parser.add_argument("--log", type=Path, metavar="FILE", help="where the output of the services goes")
    parser.add_argument(
        "--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="a setting of a service"
    )
    options = parser.parse_args(arguments)
    with user_errors("bench.faults"), contextlib.suppress(KeyboardInterrupt):
        rows = asyncio.run(measure(options))
        print(markdown(rows))
        ResultsFile(options.json)["rows"] = as_dicts(rows)
        return 0 if all(row.holds for row in rows) else 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
