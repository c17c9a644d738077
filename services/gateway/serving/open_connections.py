"""All connections of the gateway, and which of them wait for a request: these give way when there
are too many.
"""

import asyncio
import contextlib
import select
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response

from services.gateway.speech.failures import Failure

SPARE = 64
"""Connections above the limit that are kept: each of their requests is refused with an answer, and
health checks are served.
"""


@dataclass(frozen=True)
class ConnectionLimits:
    """most: connections at once. head_seconds: in which a request's head must arrive, the first one
    of a connection counted from its start. refuse: the answer to what is no request.
    """

    most: int
    head_seconds: float
    refuse: Callable[[Failure], Response]
    client_names: tuple[str, ...] = ()
    """Names of which the certificate of a client must have one; none: any certificate will do."""


class OpenConnections:
    """Keeps account of the transports; made and used inside the event loop."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: set[asyncio.Transport] = set()
        self._waiting: dict[asyncio.Transport, None] = {}
        """For a request, in the order in which they began to wait."""
        self.hang_ups = HangUps()

    def opened(self, transport: asyncio.Transport) -> None:
        """A connection more. If there are too many, the one that has waited longest for a request
        is cut; if none but the new one waits, that one is, unless it is among the spare ones.
        """
        self._open.add(transport)
        self._waiting[transport] = None
        if len(self._open) <= self.limits.most:
            return
        longest = next(iter(self._waiting))
        if longest is not transport or len(self._open) > self.limits.most + SPARE:
            self._forget(longest)
            longest.abort()

    def working(self, transport: asyncio.Transport) -> None:
        """A request has come, or the connection became a WebSocket."""
        self._waiting.pop(transport, None)

    def waiting(self, transport: asyncio.Transport) -> None:
        """It has been answered."""
        if transport in self._open:
            self._waiting.setdefault(transport)

    def shaken(self, transport: asyncio.Transport) -> None:
        """Its TLS handshake is over; the connection inside is counted in its place."""
        self._forget(transport)

    def closed(self, transport: asyncio.Transport) -> None:
        """The connection is over."""
        self._forget(transport)
        self.hang_ups.forget(transport)

    def _forget(self, transport: asyncio.Transport) -> None:
        self._open.discard(transport)
        self._waiting.pop(transport, None)


class HangUps:
    """Notices that a peer has closed its side, also of a connection that is not read at the moment:
    what the peer sent ahead would hide it. The kernel reports it (EPOLLRDHUP); elsewhere a
    connection that is not read is noticed to be closed when it is read or written again.
    """

    def __init__(self) -> None:
        self._noticed: dict[int, Callable[[], None]] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            # An epoll object is itself ready to be read when one of its files is ready.
            asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._look)

    def watch(self, transport: asyncio.Transport, noticed: Callable[[], None]) -> None:
        """Call `noticed` once when the peer closes; a further call replaces it."""
        number = _file_of(transport)
        if self._epoll is None or number < 0:
            return
        put = self._epoll.modify if number in self._noticed else self._epoll.register
        put(number, select.EPOLLRDHUP | select.EPOLLONESHOT)
        self._noticed[number] = noticed

    def forget(self, transport: asyncio.Transport) -> None:
        """The connection is over."""
        number = _file_of(transport)
        if self._noticed.pop(number, None) is not None and self._epoll is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(number)

    def close(self) -> None:
        """Watch no longer."""
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _look(self) -> None:
        if self._epoll is not None:
            for number, _ in self._epoll.poll(0):
                if noticed := self._noticed.get(number):
                    noticed()


def _file_of(transport: asyncio.Transport) -> int:
    try:
        socket = transport.get_extra_info("socket")
    except AttributeError:  # asyncio's TLS transport, once it is closed; its file was forgotten before
        return -1
    return -1 if socket is None else socket.fileno()
