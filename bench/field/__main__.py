"""The method of nari-labs' tts_bench, by ourselves: `python -m bench.field [--part NAME]
[--json FILE] [--list] [--out DIR]`.

Requests arrive by chance at 1 to 80 a second through HTTP and gRPC; texts of 3, 10 and 30 s; each
of five voices by itself, warm and cold. On a GPU with random weights of the published size of
either generation, or the model of --model; without a GPU the bundled voice and engines that only
seem to speak, fewer requests; with --url and --target a running server. Every part runs in a
process of its own; with --json the one part that is named is measured here, into that file, and
`python -m bench.field.merge` makes one report of such files.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.field import measured, merge
from bench.field.loads import GRPC, HTTP, Amount, Group, groups
from bench.field.measured import Conditions
from bench.field.model import RANDOM, VOICES, identity, made, voices
from bench.field.server import ALL_VOICES, FAKE, Server
from bench.gpu.parts import ENGINES, settings
from bench.load.command_line import add_stack_options, user_errors
from bench.parts.command import add_options, execute, write_json
from bench.parts.ledger import Ledger
from bench.parts.part import Part
from bench.parts.provenance import processor, subject
from bench.reports.tables import state
from cosyserve.engines.gpu_facts import gpus
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.reading import GENERATIONS

NAME = "bench.field"
DEMO = Path("models/demo")
LIMIT_SECONDS = 480.0
"""Of a part."""
SMALL = Amount(rates=(1.0, 4.0, 10.0), requests=20, seconds=5.0, warm=2.0)
"""Without a GPU."""
SHORT = Amount(requests=60, seconds=6.0, warm=3.0)
"""With --short: every part within two minutes, with wider intervals."""
MEBIBYTE = 1 << 20


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog=f"python -m {NAME}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(options, "build/bench/field")
    options.add_argument("--json", type=Path, metavar="FILE", help="measure the one --part here, into this file")
    options.add_argument(
        "--generation",
        choices=[each.name for each in GENERATIONS],
        default=COSYVOICE2.name,
        help="of the random weights (default: %(default)s)",
    )
    options.add_argument("--model", type=Path, metavar="DIR", help="in place of random weights")
    options.add_argument("--url", type=_address, metavar="URL", help="a running gateway, such as http://127.0.0.1:8080")
    options.add_argument("--target", type=_address, metavar="HOST:PORT", help="a running server over gRPC")
    options.add_argument("--voice", action="append", default=[], metavar="NAME", help="of a running server; repeatable")
    options.add_argument("--backend", choices=("torch", FAKE), help="(default: torch; fake without a GPU)")
    add_stack_options(options)
    options.add_argument("--rates", type=_rates, metavar="N,N", help="requests a second (default: 1 to 80)")
    options.add_argument("--short", action="store_true", help="fewer requests: each part within two minutes")
    options.add_argument(
        "--requests", type=_count, metavar="N", help="of a load, at least (default: 200; 20 without a GPU)"
    )
    options.add_argument(
        "--seconds", type=float, metavar="N", help="of a load, at least (default: 20; 5 without a GPU)"
    )
    options.add_argument(
        "--callers", type=_count, metavar="N", help="calling processes (default: one for four cores, 1 to 4)"
    )
    options.add_argument("--seed", type=int, default=0, help="of arrivals, texts and voices (default: 0)")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    top = parser()
    options = top.parse_args(arguments)
    words = list(sys.argv[1:] if arguments is None else arguments)
    present = bool(gpus())
    running = bool(options.url or options.target)
    if running and options.model:
        top.error("--model is of services that are started here, --url and --target name a running server")
    # A running server is asked as much as a GPU is: it says nothing of the machine that asks.
    usual = SHORT if options.short else Amount()
    amount = _amount(options, usual if present or running else SMALL)
    random_weights = present and not running and options.model is None
    model = None if running else options.model or (_random_directory(options.generation) if random_weights else DEMO)
    with user_errors(NAME):
        if options.json:
            model = made(model, options.generation) if random_weights and model else model
        names = tuple(VOICES) if random_weights else tuple(options.voice) if model is None else voices(model)
        every = groups(amount, names)
        if not options.json:
            return execute(options, _parts(every, options, words), _report)
        group = next((each for each in every if [each.name] == options.part), None)
        if group is None:
            top.error(f"--json needs one --part of {', '.join(each.name for each in every)}")
        server = _server(options, model, random_weights=random_weights, on_gpu=present)
        given = Conditions(
            model=server.identity,
            backend=server.backend if model else "running",
            device=server.computes_on([each.name for each in gpus()], processor()),
            requests=amount.requests,
            seconds=amount.seconds,
            seed=options.seed,
            callers=options.callers or _callers(),
            settings=" ".join(f"{name}={value}" for name, value in sorted(options.set)),
        )
        asyncio.run(measured.measure(group, server, given, subject(), options.json))
    print("\n".join(merge.text(merge.merged([merge.read(options.json)]))))
    return 0


def _server(options: argparse.Namespace, model: Path | None, *, random_weights: bool, on_gpu: bool) -> Server:
    if model is None:
        addresses = {door: address for door, address in ((HTTP, options.url), (GRPC, options.target)) if address}
        return Server(identity=f"running at {' and '.join(addresses.values())}", addresses=addresses)
    backend = options.backend or ("torch" if on_gpu else FAKE)
    own: dict[str, str] = {}
    if on_gpu and backend == "torch":
        own = settings("fast", gpus()[0].free_mib * MEBIBYTE) | ALL_VOICES
        if not random_weights:
            del own["COSYSERVE_ORCHESTRATOR_GUARDS"]  # it can speak
        elif options.generation != COSYVOICE2.name:
            # Whichever engine there is for it; the report names it.
            own = {name: value for name, value in own.items() if name not in ENGINES["fast"]}
    name = identity(model)
    return Server(
        identity=name,
        model=model,
        backend=backend,
        device=options.device or ("cuda" if on_gpu else "cpu"),
        settings=own | dict(options.set),
        derived={name: value for name, value in own.items() if name not in dict(options.set)},
        any_sample=name.startswith(RANDOM) or backend == FAKE,
    )


def _parts(every: Sequence[Group], options: argparse.Namespace, words: Sequence[str]) -> list[Part]:
    given = _handed_on(words)
    running = bool(options.url or options.target)

    def prevented(group: Group) -> str:
        if not running:
            return ""
        if group.cold:
            return "a running server keeps what it knows of its voices"
        door = group.loads[0].door
        return "" if (options.url if door == HTTP else options.target) else f"no address of a server over {door}"

    return [
        Part(
            group.name,
            group.about,
            (("-m", NAME, "--part", group.name, "--json", str(options.out.resolve() / f"{group.name}.json"), *given),),
            limit=LIMIT_SECONDS,
            keeps=True,
            under=" ".join(given),
            prevented=prevented(group),
        )
        for group in every
    ]


def _handed_on(words: Sequence[str]) -> list[str]:
    """The words of the command line that change what a part measures."""
    known = argparse.ArgumentParser(add_help=False)
    add_options(known, "")
    known.add_argument("--json")
    return known.parse_known_args(words)[1]


def _report(out: Path, parts: Sequence[Part], ledger: Ledger) -> None:
    """`report.md` and `report.json` of the parts that have figures."""
    there = [merge.read(path) for part in parts if (path := part.figures(out)).exists()]
    lines = state(parts, ledger)
    if there:
        try:
            lines += merge.text(merge.merged(there))
        except ValueError as error:
            lines.append(f"The parts are not one report: {error}; --fresh measures them again.")
    write_json(out, parts, ledger)
    (out / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _amount(options: argparse.Namespace, usual: Amount) -> Amount:
    return Amount(
        options.rates or usual.rates,
        options.requests or usual.requests,
        usual.seconds if options.seconds is None else options.seconds,
        usual.warm,
    )


def _callers() -> int:
    return min(4, max(1, len(os.sched_getaffinity(0)) // 4))


def _random_directory(generation: str) -> Path:
    return Path("build/bench/field-models") / generation


def _address(text: str) -> str:
    """host:port of a URL, or of what is one already."""
    address = text.removeprefix("http://").rstrip("/")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise argparse.ArgumentTypeError(f"{text!r} is no host and port without TLS, such as http://127.0.0.1:8080")
    return address


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 100000")
    return int(text)


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        rates = ()
    if not rates or not 0 < min(rates) <= max(rates) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers above 0 and at most 1000, such as 1,10,20")
    return rates


if __name__ == "__main__":
    sys.exit(main())
