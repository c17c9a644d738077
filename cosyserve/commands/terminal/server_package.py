"""Commands that need the services or the model tools, which the distribution cosyserve-server
brings.
"""

import importlib.util

from cosyserve.errors import SettingsError

COMMANDS = {
    "up": "services",
    "demo": "services",
    "start": "services",
    "model": "tools",
    "verify": "tools",
}
"""Command -> the package that it cannot do without."""


class ServerMissing(SettingsError):
    """The distribution cosyserve-server is not installed."""


def require(command: str) -> None:
    """Return where `command` has what it needs. Raises ServerMissing."""
    package = COMMANDS.get(command)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ServerMissing(
            f"{command} needs the package cosyserve-server, which is not installed here: "
            "pip install 'cosyserve-server[cpu]'"
        )
