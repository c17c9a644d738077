"""`python -m tools.clients`: try every foreign client of the roster against a stack of its own, and
write which calls worked. Then: do all APIs give the same samples, and do the stages rest as soon as
a caller hangs up?

Exit status: 0 everything held, 1 something did not, 2 bad arguments.
"""

import argparse
import asyncio
import datetime
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from cosyserve.commands.terminal.arguments import add_model, model_directory
from tools.clients.attempts import Attempt, attempts
from tools.clients.environments import FOLDER
from tools.clients.hang_up import hang_up
from tools.clients.roster import CLIENTS, EXAMPLES
from tools.clients.same_samples import same_samples
from tools.clients.server import Server, server
from tools.clients.table import as_json, as_markdown, put_into


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m tools.clients", description="Try foreign clients against a stack of their own."
    )
    add_model(options)
    names = list(dict.fromkeys(script.name for script in (*CLIENTS, *EXAMPLES)))
    options.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar="NAME",
        help=f"repeatable: {', '.join(names)}",
    )
    options.add_argument("--page", type=Path, metavar="FILE", help="page that gets the table, unless --only is given")
    options.add_argument(
        "--json", type=Path, default=FOLDER / "report.json", metavar="FILE", help="(default: build/clients/report.json)"
    )
    options.add_argument("--hang-ups", type=int, default=5, metavar="N", help="on each way (default: %(default)s)")
    options.add_argument(
        "--no-limit", action="store_true", help="a hang-up that takes longer than allowed is no failure: a busy machine"
    )
    return options


def main(argv: Sequence[str] | None = None) -> int:
    return asyncio.run(_run(parser().parse_args(argv)))


async def _run(arguments: argparse.Namespace) -> int:
    async with server(model_directory(arguments.model)) as running:
        # First, since what is raised here would lose what the clients have tried.
        same = await same_samples(running)
        left = await hang_up(running, arguments.hang_ups)
        tried = [attempt async for attempt in _tried(arguments.only, running)]
    checks = [f"Samples over {line}." for line in same.lines()]
    checks += [f"From a hang-up to the end of the last span, over {line}." for line in left.lines()]
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    table = as_markdown(tried, checks, date)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(as_json(tried, checks, date), encoding="utf-8")
    if arguments.page is not None and arguments.only is None:
        put_into(arguments.page, table)
    print(table)
    broken = [f"{row.client}: {row.call}: {row.result}" for row in tried if row.failed] + same.exceeded
    if not arguments.no_limit:
        broken += left.exceeded
    for line in broken:
        print(f"FAILED {line}", file=sys.stderr)
    return 1 if broken else 0


async def _tried(only: Sequence[str] | None, running: Server) -> AsyncIterator[Attempt]:
    for script in (*CLIENTS, *EXAMPLES):
        if only is None or script.name in only:
            print(f"trying {script.name}", file=sys.stderr, flush=True)
            addresses = {name: getattr(running, name) for name in ("http", "wyoming", "grpc", "guarded")}
            for attempt in await attempts(script, addresses):
                yield attempt


if __name__ == "__main__":
    sys.exit(main())
