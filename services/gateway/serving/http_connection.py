"""One HTTP connection: uvicorn's, with a time limit for the head of each request, answers to what
is no request, and an eye on the peer while it is not read.
"""

import asyncio
import functools
import sys
from typing import Any

import h11
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from cosyserve.errors import PermissionDenied
from cosyserve.tls.peer_names import names_of_certificate, require_allowed
from services.gateway.serving.open_connections import OpenConnections
from services.gateway.speech.audio_response import CUT
from services.gateway.speech.failures import Failure, failure_of

MOST_HEADER_FIELDS = 100
MOST_HEAD_BYTES = 1 << 15
"""Largest head of a request; h11 looks only at heads that are not complete."""
_LONGEST_WEBSOCKET_LINE = 8_000
"""Of the head; the library for WebSockets takes no longer ones."""
MOST_PIPELINED = 16
"""Requests in a row that are sent before the answer to the one before; then the connection is
closed, so that no peer has more work waiting than others can send.
"""
LINGER_SECONDS = 2.0
LINGER_BYTES = 1 << 25
"""What is still read behind a refusal, and dropped: a connection that is closed before is reset,
and the peer loses the answer.
"""
_READ_BYTES = 1 << 16
"""What asyncio reads at once is held whole, a quarter of a megabyte by default."""


class HttpConnection(H11Protocol):
    """connections: where it is counted. The other arguments are uvicorn's."""

    def __init__(self, connections: OpenConnections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._connections = connections
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_begun = False
        self._peer_left = False
        self._pipelined = 0
        self._stranger: Failure | None = None
        """Why a client with this certificate gets no other answer."""
        self._dropped: int | None = None
        """Bytes behind a refusal; None before."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        read_at_most(transport, _READ_BYTES)
        self._stranger = _stranger(transport, self._connections.limits.client_names)
        self._connections.opened(transport)
        self._connections.hang_ups.watch(transport, self._on_hang_up)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._connections.closed(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._dropped is not None:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.transport.abort()
            return
        if self._stranger is not None:
            self._refuse(self._stranger)
            return
        self._head_begun = self._head_begun or not self._working
        super().data_received(data)
        self._look()

    def handle_events(self) -> None:
        super().handle_events()
        if self._working:  # the task of the application has not begun to run
            self.cycle.scope["state"].setdefault(CUT, functools.partial(self._cut, self.cycle))

    def on_response_complete(self) -> None:
        self._head_begun = False
        self._pipelined = self._pipelined + 1 if self.conn.trailing_data[0] else 0
        if self._pipelined >= MOST_PIPELINED and not self.transport.is_closing():
            self._linger()
            return
        super().on_response_complete()
        self._look()

    def shutdown(self) -> None:
        if self._dropped is not None:
            self.transport.close()
        else:
            super().shutdown()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # The head goes through another parser, which gives no answer when it refuses one.
        longest = max(len(name) + len(value) for name, value in self.headers)
        if len(self.headers) > MOST_HEADER_FIELDS or max(longest, len(event.target)) > _LONGEST_WEBSOCKET_LINE:
            self._refuse(_head_too_large())
            return
        self._stop_waiting()
        self._connections.working(self.transport)
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls while it handles h11's error."""
        status = getattr(sys.exception(), "error_status_hint", 400)
        self._refuse(_head_too_large() if status == 431 else Failure(status, "invalid_http", "this is no HTTP request"))

    @property
    def _working(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _cut(self, cycle: RequestResponseCycle) -> None:
        """End an answer without the end of its body, and not as a fault of the application."""
        cycle.disconnected = True
        self.transport.close()

    def _look(self) -> None:
        """Decide what to wait for, after whatever has happened."""
        if self._dropped is not None:
            return
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            self._stop_waiting()
        elif self._working:
            self._stop_waiting()
            self._connections.working(self.transport)
            self._leave_with_peer()
        else:
            self._connections.waiting(self.transport)
            if self._head_timer is None and self.timeout_keep_alive_task is None:
                self._await_head()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self._connections.limits.head_seconds, self._on_late_head)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_late_head(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if not self._head_begun or self.conn.our_state is not h11.IDLE:
            self.transport.close()
            return
        seconds = self._connections.limits.head_seconds
        self._refuse(Failure(408, "head_timeout", f"the head of the request did not arrive within {seconds:g} s"))

    def _on_hang_up(self) -> None:
        self._peer_left = True
        self._leave_with_peer()

    def _leave_with_peer(self) -> None:
        """While data is read, its end is the usual sign; behind data that is not read, there is
        none.
        """
        if self._peer_left and self._working and self.flow.read_paused:
            self.transport.abort()

    def _refuse(self, failure: Failure) -> None:
        response = self._connections.limits.refuse(failure)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_bytes_of(self.conn, response))
        self._linger()

    def _linger(self) -> None:
        """Close in such a way that the peer gets what has been written."""
        self._stop_waiting()
        self._dropped = 0
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._head_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)


def read_at_most(transport: asyncio.Transport, size: int) -> None:
    """Have so many bytes read at once at most, where the event loop lets us."""
    if hasattr(transport, "max_size"):
        transport.max_size = size


def _bytes_of(connection: h11.Connection, response: Response) -> bytes:
    headers = [*response.raw_headers, (b"connection", b"close")]
    reply = h11.Response(status_code=response.status_code, headers=headers)
    events = (reply, h11.Data(data=bytes(response.body)), h11.EndOfMessage())
    return b"".join(connection.send(event) or b"" for event in events)


def _stranger(transport: asyncio.Transport, allowed: tuple[str, ...]) -> Failure | None:
    try:
        require_allowed(names_of_certificate(transport.get_extra_info("peercert")), allowed)
    except PermissionDenied as error:
        return failure_of(error)
    return None


def _head_too_large() -> Failure:
    message = f"the head of a request has at most {MOST_HEADER_FIELDS} fields and {MOST_HEAD_BYTES} bytes"
    return Failure(431, "head_too_large", message)
