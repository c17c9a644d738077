"""Commands that need the services or the model tools, which the distribution cosyserve-server
brings.
"""

import importlib.util

from cosyserve.errors import SettingsError

COMMANDS = {
    "up": "services.orchestrator",
    "demo": "services.orchestrator",
    "start": "services.orchestrator",
    "model": "tools.model",
    "verify": "tools.verify",
}
"""Command -> the package that it cannot do without."""


class ServerMissing(SettingsError):
    """The distribution cosyserve-server is not installed."""


def require(command: str) -> None:
    """Return where `command` has what it needs. Raises ServerMissing."""
    package = COMMANDS.get(command)
    if package is not None and not _is_there(package):
        raise ServerMissing(
            f"{command} needs the package cosyserve-server, which is not installed here: "
            "pip install 'cosyserve-server[cpu]'"
        )


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
