"""`cosyserve up`: every service on this machine, one log stream, one Ctrl-C."""

import argparse
import functools

from cosyserve.commands.terminal.arguments import add_serving, add_stack, model_directory, model_pair, serving
from cosyserve.host.starting.serving import serve

HELP = "run all services on this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_stack(parser)
    add_serving(parser)


async def run(arguments: argparse.Namespace) -> int:
    deployment = {"backend": arguments.backend, "device": arguments.device, **serving(arguments, model_pair(arguments))}
    return await serve(model_directory(arguments.model), functools.partial(print, flush=True), **deployment)
