"""The port that several processes listen on (SO_REUSEPORT)."""

import socket

from cosyserve.errors import SettingsError


def reserve(address: str) -> tuple[socket.socket, str]:
    """A socket that keeps the port of `address` (host:port, port 0: a free one) for the processes
    of this one, and the address with its port. The socket does not listen. Raises SettingsError if
    the address is in use, or not to be listened on.
    """
    host, _, port = address.rpartition(":")
    try:
        family, *_, place = socket.getaddrinfo(host.strip("[]") or None, int(port), type=socket.SOCK_STREAM)[0]
        # A socket that shares its port could also be bound beside processes of another service.
        with socket.socket(family, socket.SOCK_STREAM) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(place)
            if int(port) == 0:
                place = alone.getsockname()
        kept = socket.socket(family, socket.SOCK_STREAM)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(place)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"listen is {address!r}, which cannot be listened on (in use, or not host:port): {error}"
        ) from error
    return kept, f"{host}:{kept.getsockname()[1]}"
