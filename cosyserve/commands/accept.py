"""`cosyserve accept MODEL`: every check of this host with a model directory, in one report."""

import argparse
import os
import sys

HELP = "check this host with a model: convert, build, compare, hear, load; one report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # No character begins an option here: all that follows belongs to the steps, including --help.
    parser.prefix_chars = "\0"
    parser.add_argument("rest", nargs=argparse.REMAINDER)


async def run(arguments: argparse.Namespace) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    # The steps replace this process: Ctrl-C, the terminal and the exit status belong to them.
    os.execv(sys.executable, [sys.executable, "-m", "bench.acceptance", *arguments.rest])  # noqa: S606 - no shell is wanted
