"""A TLS connection of an asyncio server, which is counted from its first byte on.

asyncio itself hands a connection to a server when its handshake is over, holds a quarter of a
megabyte for each, and uses one SSLContext for good. Here each connection has the certificates of
its own time.
"""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from cosyserve.tasks import retrieve_error


@dataclass(frozen=True)
class TlsCalls:
    """What is called with the TCP transport: opened, when it is accepted; shaken, when its
    handshake is over, with or without success; closed, when it is lost.
    """

    opened: Callable[[asyncio.Transport], None]
    shaken: Callable[[asyncio.Transport], None]
    closed: Callable[[asyncio.Transport], None]


class TlsConnection(SSLProtocol):
    """What `loop.create_server` is to make of a connection; `protocol` gets what is inside."""

    max_size = 1 << 16

    def __init__(
        self, protocol: asyncio.BaseProtocol, context: ssl.SSLContext, handshake_seconds: float, calls: TlsCalls
    ) -> None:
        """Make it inside the event loop. handshake_seconds: after which a peer is cut that has not
        completed its handshake.
        """
        loop = asyncio.get_running_loop()
        self._shaken: asyncio.Future[None] = loop.create_future()
        self._calls = calls
        self._tcp: asyncio.Transport | None = None
        super().__init__(
            loop,
            protocol,
            context,
            self._shaken,
            server_side=True,
            ssl_handshake_timeout=handshake_seconds,  # type: ignore[arg-type]  # seconds, also parts of them
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = tcp = cast("asyncio.Transport", transport)
        self._calls.opened(tcp)
        self._shaken.add_done_callback(retrieve_error)
        self._shaken.add_done_callback(lambda _: self._calls.shaken(tcp))
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._tcp is not None:
            self._calls.closed(self._tcp)
        super().connection_lost(exc)
