"""`cosyserve verify`: compare the engines with the reference outputs of a model directory."""

import argparse
import asyncio
import importlib.util
import sys
from pathlib import Path

from cosyserve.commands.terminal.arguments import add_json
from cosyserve.commands.terminal.output import FAILED, report_failure

HELP = "compare the engines with the reference outputs of a model directory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="model directory with its reference arrays")
    add_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    if any(importlib.util.find_spec(name) is None for name in ("tools", "torch")):
        needed = "verify needs the engines: pip install 'cosyserve-server[cpu]', or run it in a checkout"
        return report_failure("", needed, FAILED, as_json=arguments.json)
    command = [sys.executable, "-m", "tools.verify", str(arguments.directory), *(["--json"] if arguments.json else [])]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
