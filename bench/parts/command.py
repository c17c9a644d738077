"""The command line of a measurement in parts."""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.parts.ledger import DONE, Ledger
from bench.parts.part import Part, chosen, write
from bench.parts.provenance import Subject, subject
from bench.parts.runner import run
from cosyserve.commands.terminal.output import interrupts_enabled

Report = Callable[[Path, Sequence[Part], Ledger], None]
"""Writes the report of what is in the directory."""


def add_options(parser: argparse.ArgumentParser, out: str) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(out),
        metavar="DIR",
        help="where figures, report and logs go (default: %(default)s)",
    )
    parser.add_argument("--part", action="append", default=[], metavar="NAME", help="only this part; repeatable")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="all parts but this; repeatable")
    parser.add_argument("--list", action="store_true", help="name the parts and end")
    parser.add_argument(
        "--report",
        action="store_true",
        help="run nothing; write the report of what is in --out, wherever it was measured",
    )
    parser.add_argument("--fresh", action="store_true", help="run also what is done already")
    parser.add_argument(
        "--budget",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="leave out what does not fit, for the next time",
    )


def execute(
    options: argparse.Namespace, parts: Sequence[Part], report: Report, of: Callable[[], Subject] = subject
) -> int:
    """Run what is asked for and write the report; 1 when a part that was asked for is not done."""
    try:
        wanted = chosen(parts, options.part, options.without)
    except argparse.ArgumentTypeError as error:
        print(error, file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{part.name:20} {part.about} (at most {part.limit:.0f} s)" for part in wanted))
        return 0
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if options.report:
        if (before := Ledger.read(out)) is None:
            print(f"{out} holds no figures", file=sys.stderr)
            return 2
        report(out, parts, before)
        return 0
    ledger = Ledger.go_on(out, of(), parts)
    for part in wanted if options.fresh else ():
        ledger.forget(part)
    print(ledger.subject, file=sys.stderr)
    try:
        with interrupts_enabled():  # parts are stopped by SIGINT, and inherit how it is taken
            asyncio.run(run(wanted, ledger, options.budget))
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
    report(out, parts, ledger)
    print(f"{out / 'report.md'}")
    return int(any((done := ledger.runs.get(part.name)) is None or done.state != DONE for part in wanted))


def figures(out: Path, parts: Sequence[Part]) -> dict[str, Any]:
    """What the parts have measured so far, by name."""
    paths = {part.name: part.figures(out) for part in parts}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def write_json(out: Path, parts: Sequence[Part], ledger: Ledger, **more: object) -> None:
    """`report.json`: subject, how each part ended, every figure."""
    runs = {name: asdict(run) for name, run in ledger.runs.items()}
    write(
        out / "report.json", {"subject": asdict(ledger.subject), "parts": runs, "figures": figures(out, parts), **more}
    )
