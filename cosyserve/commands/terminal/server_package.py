"""Commands that need the services or the model tools, which the distribution cosyserve-server
brings.
"""

import asyncio
import importlib.util
import sys

from cosyserve.errors import SettingsError

COMMANDS = {
    "up": "services.orchestrator",
    "demo": "services.orchestrator",
    "start": "services.orchestrator",
    "model": "tools.model",
    "verify": "tools.verify",
    "accept": "bench.acceptance",
}
"""Command -> the package that it cannot do without."""


class ServerMissing(SettingsError):
    """The distribution cosyserve-server is not installed."""


def require(command: str) -> None:
    """Return where `command` has what it needs. Raises ServerMissing."""
    package = COMMANDS.get(command)
    if package is not None and not is_there(package):
        raise ServerMissing(
            f"{command} needs the package cosyserve-server, which is not installed here: "
            "pip install 'cosyserve-server[cpu]'"
        )


def require_engines(command: str, package: str) -> None:
    """Return if `package` and the engines that it uses are installed. Raises ServerMissing."""
    if not (is_there(package) and is_there("torch")):
        raise ServerMissing(
            f"{command} needs the engines: pip install 'cosyserve-server[cpu]', or run it in a checkout"
        )


async def run_module(module: str, *arguments: str) -> int:
    """Run `python -m module` and return its exit status; it is killed if this is cancelled."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def is_there(package: str) -> bool:
    """Whether a package or module is installed."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
