"""`cosyserve verify`: compare the engines with the reference outputs of a model directory."""

import argparse
from pathlib import Path

from cosyserve.commands.terminal.arguments import add_json
from cosyserve.commands.terminal.server_package import require_engines, run_module

HELP = "compare the engines with the reference outputs of a model directory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="model directory with its reference arrays")
    add_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    require_engines("verify", "tools")
    return await run_module("tools.verify", str(arguments.directory), *(["--json"] if arguments.json else []))
