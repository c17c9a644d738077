"""Do memory, descriptors, threads and tasks stay flat? `python -m bench.whole_soak [--minutes 30]
[--callers 12] [--json FILE] [--svg FILE]`

All of `cosyserve up` with the gateway, keys, TLS, metrics that are scraped and traces of one
request in fifty; engines that only take time. Callers of gRPC, HTTP and WebSockets are heard out,
hang up, are refused, make voices and delete them; keys and certificates are exchanged each minute.
Every few seconds a sample of each process. Descriptors, threads and tasks without a request are
compared before and behind the load, memory by the slope of a line over the samples. Exit status 1
if something grows, a request does not end as it should, or a process ends.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.load.command_line import command, user_errors
from bench.load.stack import report
from bench.parts.part import ResultsFile
from bench.parts.progress import bar
from bench.parts.provenance import subject
from bench.reports.tables import columns
from bench.whole_soak import verdict
from bench.whole_soak.over_grpc import GrpcCallers
from bench.whole_soak.over_http import HttpCallers
from bench.whole_soak.samples import Sample, Watch, svg
from bench.whole_soak.tally import Tally
from bench.whole_soak.up import Up, serving

WARM_UP_SHARE = 0.125
"""Of the time, in front of it."""
EXCHANGE_SECONDS = 60.0
PAUSE_SECONDS = 0.5
"""Between two requests of a caller, at most, and after one that failed."""


@dataclass
class Soaked:
    """traces: bytes of the file, of which there is one more at most. troubles: how often each line
    of a warning or an error came.
    """

    tally: Tally
    samples: list[Sample] = field(default_factory=list)
    rows: list[verdict.Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    troubles: dict[str, int] = field(default_factory=dict)
    traces: int = 0


async def soak(options: argparse.Namespace, results: ResultsFile) -> Soaked:
    """The whole of it; requests of the warm-up are not counted. results: has the samples so far,
    each minute.
    """
    seconds = 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        async with serving(options.model.resolve(), Path(folder), options.places, options.token_milliseconds) as up:
            watch, done = Watch(up), Soaked(Tally())
            warm = Tally()
            await load(up, warm, options.callers, max(WARM_UP_SHARE * seconds, 1.0), options.seed)
            before = await watch.idle(0)
            report(f"warm after {warm.requests} requests, {warm.errors.total()} errors")
            others = [
                asyncio.create_task(_look(watch, done, seconds, options.every)),
                asyncio.create_task(_exchange(up, done, results)),
            ]
            try:
                await load(up, done.tally, options.callers, seconds, options.seed + 1)
            finally:
                for task in others:
                    task.cancel()
            for over in await asyncio.gather(*others, return_exceptions=True):
                if isinstance(over, Exception):
                    raise over
            done.samples.append(await watch.sample(done.tally.requests))
            behind = await watch.idle(done.tally.requests)
            done.rows = verdict.rows(done.samples, before, behind)
            done.traces, done.troubles = up.traces.stat().st_size, up.output.troubles
            errors = {**warm.errors, **done.tally.errors}
            done.wrong = verdict.wrong(done.rows, done.tally.requests, errors, watch.restarted())
    return done


async def load(up: Up, tally: Tally, callers: int, seconds: float, seed: int) -> None:
    """Callers at once, each of whom makes one request after the other, of kinds chosen by chance:
    until so many seconds have passed and every request is over; then all connections are closed.
    """
    rng = random.Random(seed)
    over_grpc, over_http = GrpcCallers(up, rng), HttpCallers(up, rng)
    kinds = {**over_grpc.kinds(), **over_http.kinds()}
    weights = [weight for weight, _ in kinds.values()]
    ends = time.monotonic() + seconds

    async def caller() -> None:
        while time.monotonic() < ends:
            (kind,) = rng.choices(list(kinds), weights)
            as_it_should = await tally.count(kind, kinds[kind][1])
            await asyncio.sleep(rng.uniform(0.0, PAUSE_SECONDS) if as_it_should else PAUSE_SECONDS)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller())
    finally:
        await over_grpc.close()
        await over_http.close()


async def _look(watch: Watch, done: Soaked, seconds: float, every: float) -> None:
    began = time.monotonic()
    while True:
        done.samples.append(await watch.sample(done.tally.requests))
        passed = time.monotonic() - began
        print(
            f"\r[{bar(passed / seconds)}] {passed:.0f} of {seconds:.0f} s, {done.tally.requests} requests, "
            f"{done.tally.errors.total()} errors ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        await asyncio.sleep(every)


async def _exchange(up: Up, done: Soaked, results: ResultsFile) -> None:
    number = 0
    while True:
        await asyncio.sleep(EXCHANGE_SECONDS)
        number += 1
        await up.exchange(number)
        results["samples"] = [asdict(sample) for sample in done.samples]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command("bench.whole_soak", __doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="(default: %(default)g)")
    parser.add_argument("--callers", type=int, default=12, help="at once (default: %(default)s)")
    parser.add_argument(
        "--places", type=int, default=8, help="of the orchestrator; with more callers some are refused (default: "
        "%(default)s)"
    )  # fmt: skip
    parser.add_argument(
        "--token-milliseconds", type=float, default=2.0, help="that a speech token takes (default: %(default)g)"
    )
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two samples (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where samples and counts go")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="where the drawing goes")
    options = parser.parse_args(arguments)
    with user_errors("bench.whole_soak"):
        results = ResultsFile(options.json)
        results.clear()
        done = asyncio.run(soak(options, results))
    results.update(
        subject=asdict(subject()),
        requests=done.tally.requests,
        outcomes=done.tally.by_kind(),
        errors=dict(done.tally.errors),
        troubles=done.troubles,
        traces=done.traces,
        samples=[asdict(sample) for sample in done.samples],
        rows=[asdict(row) for row in done.rows],
    )
    results["wrong"] = done.wrong
    if options.svg is not None:
        title = f"cosyserve up, {done.tally.requests} requests"
        options.svg.write_text(svg(title, done.samples), encoding="utf-8")
    print(f"\n{done.tally.requests} requests in {done.samples[-1].second - done.samples[0].second:.0f} s")
    for kind, outcomes in done.tally.by_kind().items():
        print(f"  {kind}: {', '.join(f'{count} {outcome}' for outcome, count in outcomes.items())}")
    print("\n".join(columns([_cells(row) for row in done.rows])))
    for line in done.wrong:
        print(line, file=sys.stderr)
    return int(bool(done.wrong))


def _cells(row: verdict.Row) -> dict[str, str]:
    """A line of the table."""
    first, last = row.megabytes
    counts = {name: "-" if None in (pair := getattr(row, name)) else f"{pair[0]}, {pair[1]}" for name in verdict.SPARE}
    return {
        "process": row.process,
        "MB": f"{first:.1f}, {last:.1f}",
        "MB in 100 requests": f"{row.slope:+.3f}",
    } | {f"{name} when idle": cell for name, cell in counts.items()}


if __name__ == "__main__":
    sys.exit(main())
