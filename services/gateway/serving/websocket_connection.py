"""One WebSocket connection: uvicorn's, with a bound on what a peer makes it hold, and an eye on the
peer while it is not read.
"""

import asyncio
from asyncio.transports import BaseTransport
from typing import Any

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from services.gateway.serving.http_connection import LINGER_BYTES, LINGER_SECONDS, read_at_most
from services.gateway.serving.open_connections import OpenConnections
from services.gateway.websocket.conversation import OVER

MOST_FRAGMENTS = 1_024
"""Of a message: an empty fragment counts for nothing in its length."""
_READ_BYTES = 1 << 14
"""All messages in what is read at once are held."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """connections: where it is counted. The other arguments are uvicorn's."""

    def __init__(self, connections: OpenConnections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._connections = connections
        self._peer_left = False
        self._pongs_wait = False
        self._over = asyncio.Event()
        self._dropped: int | None = None
        """Bytes behind a failure; None before."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        read_at_most(self.transport, _READ_BYTES)
        self._connections.hang_ups.watch(self.transport, self._on_hang_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.closed(self.transport)
        self._over.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._dropped is not None:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.transport.abort()
            return
        super().data_received(data)
        if not self.handshake_initiated and not self.transport.is_closing():
            # The whole head was in the first data: it is none that the library takes.
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:  # the task of the application has not begun to run
            self.scope["state"][OVER] = self._over

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MOST_FRAGMENTS:
            self._fail(CloseCode.MESSAGE_TOO_BIG, f"a message has at most {MOST_FRAGMENTS} fragments")
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        """Pongs are written whether the peer reads or not: if it does not, no more pings are
        read.
        """
        super().handle_ping()
        if not self.writable.is_set() and not self._pongs_wait:
            self._pongs_wait = True
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._pongs_wait:
            self._pongs_wait = False
            if not self.read_paused and not self.transport.is_closing():
                self.transport.resume_reading()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                # uvicorn's own answer fails when the peer has closed behind it.
                self._fail(CloseCode.INVALID_DATA, "a text message is not UTF-8")
                return
        super().send_receive_event_to_app()
        self._leave_with_peer()

    async def send(self, message: ASGISendEvent) -> None:
        """The connection may have been closed, by the peer or for its messages, before the
        application knows: raises ClientDisconnected then, which uvicorn takes for a fault.
        """
        if self.close_sent and message["type"] == "websocket.send":
            raise ClientDisconnected
        await super().send(message)

    def _fail(self, code: CloseCode, reason: str) -> None:
        self.frames = []
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Send the close frame, and read on for a while before the connection is closed: closed at
        once, it would be reset, and the peer that still sends would lose the frame.
        """
        if self._dropped is not None:
            return
        self._dropped = 0
        closing = self.conn.close_sent
        code = CloseCode.ABNORMAL_CLOSURE if closing is None else closing.code
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _on_hang_up(self) -> None:
        self._peer_left = True
        self._leave_with_peer()

    def _leave_with_peer(self) -> None:
        if self._peer_left and (self.read_paused or self._pongs_wait):
            self.transport.abort()
