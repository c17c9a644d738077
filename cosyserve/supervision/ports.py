"""Loopback ports for child processes."""

import random
import socket

_FIRST, _LAST = 20_000, 32_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different ports on which nothing listens.

    They lie below the range from which the kernel takes the ports of outgoing connections, so that a child that died finds its port
    still free when it is started again. Raises OSError when there are not enough.
    """
    found: list[int] = []
    for port in random.sample(range(_FIRST, _LAST), _LAST - _FIRST):
        if len(found) == count:
            return found
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            found.append(port)
    raise OSError(f"fewer than {count} free ports from {_FIRST} to {_LAST} on {host}")
