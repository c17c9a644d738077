"""Runs a service as a process: settings from the environment, one line on stderr if it cannot
start, and the exit status.

0 drained, 1 the engine broke while serving, 2 the settings, 3 the model directory.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from typing import TypeVar

from cosyserve import settings as environment
from cosyserve.errors import ModelError, SettingsError
from cosyserve.rpc.server import Load, ServerSettings, ServiceBroken, StoppedWhileLoading, serve

Settings = TypeVar("Settings", bound=ServerSettings)
_STATUS: dict[type[Exception], int] = {ServiceBroken: 1, SettingsError: 2, ModelError: 3}


def run(
    name: str, prefix: str, settings: type[Settings], loader: Callable[[Settings], Load], *, owns_health: bool = False
) -> int:
    """Serve `name` until SIGTERM; returns the exit status.

    settings: dataclass read from the variables that begin with `prefix`. loader: creates from them
    the `load` argument of `cosyserve.rpc.server.serve`.
    """
    try:
        values = environment.load(settings, prefix, os.environ)
        logging.basicConfig(level=values.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        asyncio.run(_serve(name, values, loader(values), owns_health=owns_health))
    except (ServiceBroken, SettingsError, ModelError) as error:
        sys.stderr.write(f"{error}\n")
        return next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    return 0


async def _serve(name: str, values: ServerSettings, load: Load, *, owns_health: bool) -> None:
    try:
        await serve(name, values, load, owns_health=owns_health)
    except StoppedWhileLoading:
        # The thread that loads may need minutes more, and both asyncio and the interpreter would
        # wait for it.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
