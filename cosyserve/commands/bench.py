"""`cosyserve bench`: how long callers of a server wait, and whether their players run dry."""

import argparse
import sys
from pathlib import Path

from cosyserve.client import AsyncClient
from cosyserve.commands.terminal.arguments import SERVER, add_json, number, numbers, server
from cosyserve.commands.terminal.connection_arguments import add_api_key, add_client_tls, api_key, client_tls
from cosyserve.commands.terminal.output import FAILED, WrongUsage, print_json
from cosyserve.errors import CosyserveError
from cosyserve.load.measurement import TEXTS, Load, Outcome, as_dict, measure, percentile

HELP = "measure a server: waiting times, real-time factor and underruns at several loads"
_CONNECT_SECONDS = 5.0
_POSITIVE = number("number above 0", lambda value: 0 < value <= 1e5)
_HEAD = (
    "load           requests  refused  failed    first byte ms: p50    p95    p99   audible ms: p50    p95"
    "   RTF p50   audio s/s  underruns  longest"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "server", nargs="?", type=server, default=SERVER, metavar="ADDRESS", help="HOST:PORT (default: %(default)s)"
    )
    add_api_key(parser)
    add_client_tls(parser)
    arrivals = parser.add_mutually_exclusive_group()
    arrivals.add_argument(
        "--streams",
        type=numbers(1, 4096),
        default=(1,),
        metavar="N,N",
        help="callers at once, each asking again when its answer is complete; one load for each number (default: 1)",
    )
    arrivals.add_argument(
        "--rate",
        type=_POSITIVE,
        metavar="N",
        help="requests a second that arrive by chance (Poisson), in place of --streams",
    )
    parser.add_argument("--offline", action="store_true", help="whole texts (SynthesizeUnary) in place of streams")
    parser.add_argument(
        "--seconds", type=_POSITIVE, default=20.0, metavar="N", help="of each load (default: %(default)g)"
    )
    parser.add_argument("--voice", default="", metavar="ID", help="(default: the server's)")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="one text a line (default: six built-in ones)")
    parser.add_argument(
        "--buffer",
        type=number("number of milliseconds from 0 to 60000", lambda value: 0 <= value <= 60_000),
        default=40.0,
        metavar="MILLISECONDS",
        help="that a player keeps before it begins (default: %(default)g)",
    )
    add_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    texts = _texts(arguments.texts)
    results: list[tuple[Load, Outcome]] = []
    async with AsyncClient(arguments.server, api_key(arguments), tls=client_tls(arguments)) as client:
        await client.connect(_CONNECT_SECONDS)
        if not arguments.json:
            print(_HEAD)
        for place, streams in enumerate((1,) if arguments.rate else arguments.streams):
            load = Load(
                streams=streams,
                rate=arguments.rate or 0.0,
                seconds=arguments.seconds,
                offline=arguments.offline,
                voice=arguments.voice,
                texts=texts,
                buffer_seconds=arguments.buffer / 1000,
                first_seed=place * 1_000_000,
            )
            try:
                outcome = await measure(client, load)
            except CosyserveError as error:
                if not results:
                    raise
                outcome = Outcome(failures=[error.message])
            results.append((load, outcome))
            if not arguments.json:
                print(_row(load, outcome), flush=True)
                for message in sorted(set(outcome.failures))[:3]:
                    print(f"failed: {message}", file=sys.stderr)
    if arguments.json:
        print_json({"server": arguments.server, "loads": [as_dict(load, outcome) for load, outcome in results]})
    return FAILED if any(outcome.failures or not outcome.heard for _, outcome in results) else 0


def _row(load: Load, outcome: Outcome) -> str:
    def milliseconds(values: list[float], percent: float) -> str:
        value = percentile(values, percent)
        return "-" if value is None else f"{1000 * value:.0f}"

    factor = percentile(outcome.real_time_factor, 50)
    name = f"{load.rate:g} a second" if load.rate else f"{load.streams} stream{'s' if load.streams > 1 else ''}"
    return (
        f"{name:<14} {len(outcome.heard):8d} {len(outcome.refusals):8d} {len(outcome.failures):7d}"
        f"{milliseconds(outcome.first_byte, 50):>22} {milliseconds(outcome.first_byte, 95):>6}"
        f" {milliseconds(outcome.first_byte, 99):>6}"
        f"{milliseconds(outcome.first_audible, 50):>18} {milliseconds(outcome.first_audible, 95):>6}"
        f"{'-' if factor is None else f'{factor:.2f}':>10}"
        f"{outcome.audio_seconds / outcome.seconds if outcome.seconds else 0:>12.2f} {outcome.underruns:>10}"
        f" {1000 * outcome.longest_underrun_seconds:>5.0f} ms"
    )


def _texts(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return TEXTS
    try:
        lines = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise WrongUsage(f"{path}: is no UTF-8 text (byte {error.start})") from None
    if not lines:
        raise WrongUsage(f"{path}: holds no text; one a line is expected")
    return lines
