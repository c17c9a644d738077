"""Sockets that the gateway listens on, with the options that their connections inherit."""

import socket

from cosyserve.errors import SettingsError

BACKLOG = 2048
"""Connections that the system holds until they are accepted."""


def listening_socket(setting: str, address: str, reader_seconds: float) -> socket.socket:
    """address: host:port. setting: its name. reader_seconds: after which the system drops a
    connection whose peer takes nothing. Raises SettingsError if the address cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, int(port)), family=family, backlog=BACKLOG)
        # asyncio sets it only for sockets that name their protocol, which create_server's do not.
        # Without it a write waits until the peer has acknowledged the one before, which peers put
        # off for 40 ms: the body behind its headers, each small message of a WebSocket.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * reader_seconds))
        return listening
    except OSError as error:
        raise SettingsError(
            f"{setting} is {address!r}, which cannot be listened on: {error.strerror or error}"
        ) from error
