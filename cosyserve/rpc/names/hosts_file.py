"""Names of the hosts file, which go before those of DNS."""

from pathlib import Path
from typing import Final

HOSTS: Final = Path("/etc/hosts")
_LOOPBACK: Final = ("127.0.0.1", "::1")


def listed_addresses(host: str, file: Path = HOSTS) -> list[str]:
    """The addresses of `host` in the hosts file, in its order; empty if it is not there. localhost
    and names below it are the loopback in any case (RFC 6761).
    """
    wanted = host.lower()
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    entries = (line.partition("#")[0].split() for line in lines)
    found = [entry[0] for entry in entries if wanted in (name.lower() for name in entry[1:])]
    if not found and (wanted == "localhost" or wanted.endswith(".localhost")):
        return list(_LOOPBACK)
    return list(dict.fromkeys(found))
