"""`python -m services.gateway`: serve HTTP and WebSockets until SIGTERM."""

import logging
import os
import socket
import sys

import uvicorn
from fastapi import FastAPI

from cosyserve import settings as environment
from cosyserve import telemetry
from cosyserve.errors import SettingsError
from services.gateway.app import application
from services.gateway.settings import PREFIX, GatewaySettings
from services.gateway.websocket.conversation import MOST_CHARACTERS

log = logging.getLogger(__name__)


class GatewayServer(uvicorn.Server):
    """Says in /readyz that it drains before it stops to accept connections."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.draining = True
        self._app.state.wyoming.begin_drain()
        await super().shutdown(sockets)


def server_config(app: FastAPI, settings: GatewaySettings) -> uvicorn.Config:
    """How uvicorn serves the application."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ws="websockets-sansio",
        ws_max_size=4 * MOST_CHARACTERS,
        # A pong is not read while a message waits, and peers that stall are noticed otherwise.
        ws_ping_interval=None,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=int(settings.drain_seconds),
        server_header=False,
    )


def main() -> int:
    """Returns the exit status: 0 drained, 2 the settings."""
    try:
        settings = environment.load(GatewaySettings, PREFIX, os.environ)
        logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        listening = _listen("listen", settings.listen, settings.reader_seconds)
        wyoming = None
        if settings.wyoming_listen:
            wyoming = _listen("wyoming_listen", settings.wyoming_listen, settings.reader_seconds)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    telemetry.configure("Gateway")
    app = application(settings, wyoming)
    if wyoming is not None:
        log.info("the gateway serves Wyoming on port %d", wyoming.getsockname()[1])
    log.info("the gateway listens on port %d, for %s", listening.getsockname()[1], settings.orchestrator)
    try:
        GatewayServer(server_config(app, settings), app).run(sockets=[listening])
    finally:
        telemetry.shutdown()
    return 0


def _listen(setting: str, address: str, reader_seconds: float) -> socket.socket:
    """setting: the name of the address. reader_seconds: after which the system drops a connection
    whose peer takes nothing. Raises SettingsError if the address cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, int(port)), family=family, backlog=2048)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # inherited by accepted connections
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * reader_seconds))
        return listening
    except OSError as error:
        raise SettingsError(
            f"{setting} is {address!r}, which cannot be listened on: {error.strerror or error}"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
