"""How many listeners, and how long does each wait? `python -m bench.serving [--model DIR]
[--streams 1,2,4] [--callers N] [--json FILE] [--plot FILE]`

All services on this machine, or the endpoint named by --server, over gRPC. Ways to arrive: closed
(so many callers, each asking again as soon as its answer is complete), poisson (so many listeners
at once on average, if each listens in real time, who know nothing of each other) and listening (so
many listeners at once, each of whom hears its answer to the end and then asks again). A stream has
a gap when a player that begins with its first byte runs dry. A load that --json has already is not
run again: model and settings have to be the same.

One calling process uses one core at most, and receives less than two GPUs speak; --callers 4 asks
from four.
"""

import argparse
import asyncio
import contextlib
import itertools
import re
import statistics
import sys
import tempfile
from pathlib import Path

from bench.load.caller import CLOSED, LISTENING, POISSON, TOGETHER, Caller
from bench.load.callers import Callers, ask, callers
from bench.load.command_line import add_stack_options, command, user_errors
from bench.load.engines import text_ids
from bench.load.stack import TEXTS, endpoint, gpu_megabytes, room_for
from bench.parts.provenance import machine
from bench.reports.plots import plot
from bench.reports.serving_report import HEAD, Level, level, read_json, row, write_json
from cosyserve.commands.terminal.arguments import numbers, whole
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import TOKENS_PER_SECOND

ARRIVALS = (CLOSED, POISSON, LISTENING)
_RATIO = re.compile(r"(min|max)_token_text_ratio: [\d.]+")
WARM = 32
"""Listeners come one after the other; if all came at once in the warm-up, what they hold together
would be more than the load that is measured ever holds.
"""
FIRST = 1_000_000
"""Number of the first request that counts."""


def sentences_of(model: Path, seconds: float, target: Path) -> Path:
    """`target`, an empty directory, with the files of `model` as links and a yaml by which each
    sentence has so many speech tokens that `TEXTS` take `seconds` on average. Raises ValueError if
    the yaml does not name both ratios of lengths.
    """
    name = ModelDirectory(model).yaml_name
    for each in model.iterdir():
        if each.name != name:
            (target / each.name).symlink_to(each.resolve())
    ratio = seconds * TOKENS_PER_SECOND / statistics.fmean(len(ids) for ids in text_ids(model, TEXTS))
    yaml, count = _RATIO.subn(rf"\1_token_text_ratio: {ratio:.3f}", (model / name).read_text(encoding="utf-8"))
    if count != 2:
        raise ValueError(f"{model / name} has {count} of min_token_text_ratio and max_token_text_ratio")
    (target / name).write_text(yaml, encoding="utf-8")
    return target


async def measure(askers: Caller | Callers, arrivals: str, streams: int, seconds: float) -> Level:
    """One load, after a warm-up with the same number of askers, of listeners WARM at most but one
    in each process. Raises ValueError when no answer came.
    """
    warm = max(min(streams, WARM), askers.count) if arrivals == LISTENING else streams
    before = await ask(askers, TOGETHER, warm, 0)
    if not before.heard:
        raise ValueError(f"no request of {streams} was answered: {sorted(set(before.failures))}")
    spoken = statistics.fmean(one.audio for one in before.heard)
    outcome = await ask(askers, arrivals, streams, FIRST, seconds, spoken)
    for message in sorted(set(outcome.failures))[:3]:
        print(f"failed: {message}", file=sys.stderr)
    return level(arrivals, streams, outcome, gpu_megabytes(), askers.count)


async def run(options: argparse.Namespace) -> list[Level]:
    """All loads that are not known yet; each is printed, and kept in --json, as soon as it is
    measured.
    """
    if min(options.streams) < options.callers:
        raise ValueError(f"{options.callers} callers cannot share a load of {min(options.streams)}")
    levels = read_json(options.json, machine(), options.callers) if options.json else []
    known = {(one.arrivals, one.streams) for one in levels}
    known |= {
        (one.arrivals, streams)
        for one in levels
        for streams in options.streams
        if one.gap_free < options.stop_below and streams > one.streams
    }
    wanted = [load for load in itertools.product(options.arrivals, options.streams) if load not in known]
    if options.callers > 1:
        print(f"each load is asked for by {options.callers} processes")
    print(HEAD)
    for one in levels:
        print(row(one))
    if not wanted:
        return levels
    async with contextlib.AsyncExitStack() as exits:
        if options.sentence_seconds:
            directory = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="cosyserve-bench-")))
            options.model = sentences_of(options.model, options.sentence_seconds, directory)
        address = await exits.enter_async_context(endpoint(options, room_for(max(options.streams) * 2 + 8)))
        asking = callers(options.callers, address, options.connections, options.voice)
        askers, over = await exits.enter_async_context(asking), set[str]()
        for number, (arrivals, streams) in enumerate(wanted):
            if arrivals in over:
                continue
            print(f"\r{number} of {len(wanted)} loads, now {streams} {arrivals} ", end="", file=sys.stderr, flush=True)
            levels.append(await measure(askers, arrivals, streams, options.seconds))
            print(row(levels[-1]), flush=True)
            if options.json:
                write_json(options.json, machine(), levels)
            if levels[-1].gap_free < options.stop_below:
                over.add(arrivals)
    return levels


def _ways(text: str) -> list[str]:
    ways = text.split(",")
    if not set(ways) <= set(ARRIVALS):
        raise argparse.ArgumentTypeError(f"{text!r} is no list out of {', '.join(ARRIVALS)}")
    return ways


def main(arguments: list[str] | None = None) -> int:
    parser = command("bench.serving", __doc__)
    add_stack_options(parser)
    parser.add_argument("--server", metavar="HOST:PORT", help="measure this endpoint instead of starting services")
    parser.add_argument("--voice", default="", help="(default: the server's)")
    parser.add_argument(
        "--sentence-seconds",
        type=float,
        metavar="SECONDS",
        help="each sentence is made as long as its text times what gives so many seconds on average, whatever the "
        "model would say (default: as the model ends them)",
    )
    parser.add_argument("--streams", type=numbers(1, 65_536), default=(1, 2, 4), help="loads (default: 1,2,4)")
    parser.add_argument(
        "--arrivals",
        type=_ways,
        default=["closed", "poisson"],
        help="a list out of closed, poisson, listening (default: closed,poisson)",
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load (default: %(default)g)")
    parser.add_argument(
        "--stop-below",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="no larger load once fewer of its streams are without a gap",
    )
    parser.add_argument(
        "--callers",
        type=whole(1, 256),
        default=1,
        metavar="N",
        help="processes that share each load; each uses one core at most, which limits what it receives (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--connections",
        type=int,
        default=4,
        help="connections of each caller that share its requests (default: %(default)s)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep figures here; loads that it has are not run again"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them")
    options = parser.parse_args(arguments)
    with user_errors("bench.serving"):
        levels = asyncio.run(run(options))
    if options.plot:
        plot(options.plot, machine(), levels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
