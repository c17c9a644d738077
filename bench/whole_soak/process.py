"""`python -m bench.whole_soak.process`: `cosyserve up`, whose processes are not started again when
they stop answering: a machine that stands still for a while, because something else has it, stops
all of them alike.
"""

import argparse
import asyncio
import functools
import sys

from cosyserve.commands import up
from cosyserve.commands.terminal.arguments import model_directory, serving
from cosyserve.host.starting.serving import serve


async def run(arguments: argparse.Namespace) -> int:
    """As `cosyserve.commands.up.run`."""
    deployment = {"backend": arguments.backend, "device": arguments.device, **serving(arguments)}
    log = functools.partial(print, flush=True)
    return await serve(model_directory(arguments.model), log, restart_frozen=False, **deployment)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.whole_soak.process", description=__doc__)
    up.add_arguments(parser)
    sys.exit(asyncio.run(run(parser.parse_args())))
