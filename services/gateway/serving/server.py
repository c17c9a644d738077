"""uvicorn with our connections, and a drain that lets work end before connections are closed."""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Generator
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from cosyserve.tls.certificate_files import CurrentCertificates
from cosyserve.tls.server_connection import TlsCalls, TlsConnection
from services.gateway.serving.http_connection import MOST_HEAD_BYTES, HttpConnection
from services.gateway.serving.open_connections import ConnectionLimits, OpenConnections
from services.gateway.serving.websocket_connection import WebSocketConnection
from services.gateway.settings import GatewaySettings
from services.gateway.speech.drain import Drain
from services.gateway.websocket.conversation import MOST_CHARACTERS

_CUT_SECONDS = 1
"""For connections to be closed and tasks to end, once the time of the drain is over."""


class GatewayServer(uvicorn.Server):
    """Serves one application, which has its drain in `state.drain`."""

    def __init__(
        self,
        app: FastAPI,
        settings: GatewaySettings,
        limits: ConnectionLimits,
        certificates: CurrentCertificates | None = None,
    ) -> None:
        """certificates: None for plaintext."""
        super().__init__(_config(app, settings))
        self._certificates = certificates
        self._drain: Drain = app.state.drain
        self._seconds, self._limits = settings.drain_seconds, limits
        self._connections: OpenConnections | None = None
        self._forced = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._connections = OpenConnections(self._limits)
        # uvicorn calls these as it calls its own classes.
        self.config.http_protocol_class = functools.partial(self._connection, self._connections)  # type: ignore[assignment]
        self.config.ws_protocol_class = functools.partial(WebSocketConnection, self._connections)  # type: ignore[assignment]
        await super().startup(sockets)

    def _connection(self, connections: OpenConnections, **arguments: Any) -> asyncio.BaseProtocol:
        http = HttpConnection(connections, **arguments)
        if self._certificates is None:
            return http
        calls = TlsCalls(connections.opened, connections.shaken, connections.closed)
        return TlsConnection(http, self._certificates.latest().context, self._limits.head_seconds, calls)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """New requests are refused, those under way end, WebSockets when their utterance has ended;
        what is left after the time of the drain is cut.
        """
        self._drain.begin()
        waiting = [asyncio.ensure_future(waited) for waited in (self._drain.until_idle(), self._forced.wait())]
        await asyncio.wait(waiting, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await super().shutdown(sockets)
        if self._connections is not None:
            self._connections.hang_ups.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """uvicorn's, which raises the signals once more at the end: that would end the process by
        the signal, before its last spans are sent and with another status than that of a drain.
        """
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second interrupt ends the drain."""
        super().handle_exit(sig, frame)
        if self.force_exit and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._forced.set)


def _config(app: FastAPI, settings: GatewaySettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        # Compressing audio costs much and gains nothing; compressed messages are not to be taken.
        ws_per_message_deflate=False,
        ws_max_size=4 * MOST_CHARACTERS,
        # A pong is not read while a message waits, and peers that stall are noticed otherwise.
        ws_ping_interval=None,
        http="h11",
        ws="websockets-sansio",
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        timeout_keep_alive=round(settings.keep_alive_seconds),
        timeout_graceful_shutdown=_CUT_SECONDS,
        server_header=False,
    )
