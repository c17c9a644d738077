"""The gateway on a real socket in front of a server, in this process."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx2
import uvicorn

from cosyserve.tls.certificate_files import CurrentCertificates
from services.gateway.app import application, connection_limits
from services.gateway.serving.listening import listening_socket
from services.gateway.serving.server import GatewayServer
from services.gateway.settings import GatewaySettings
from tests.stacks.scripted_stages import Stack, stack

_OFTEN = SimpleNamespace(**{**vars(asyncio), "sleep": lambda seconds: asyncio.sleep(seconds / 10)})
"""uvicorn looks for the end of its work every 0.1 s, which hundreds of tests would wait for."""
_LINGER = [f"services.gateway.serving.{name}_connection.LINGER_SECONDS" for name in ("http", "websocket")]
"""How long a connection that was refused is still read, to let the answer arrive: 2 s."""


@dataclass
class Gateway:
    """address: host:port; http: a client of it; server: for a test that lets it drain."""

    address: str
    http: httpx2.AsyncClient
    server: uvicorn.Server


@contextlib.asynccontextmanager
async def gateway(
    orchestrator: str,
    wyoming: socket.socket | None = None,
    *,
    verify: ssl.SSLContext | bool = False,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """orchestrator: host:port of the public service. wyoming: bound, for that protocol. verify: of
    the client, for a gateway with TLS; without it no certificates are read, which would take
    longer than the start. settings: of the gateway.
    """
    values = GatewaySettings(orchestrator=orchestrator, **{"drain_seconds": 0.0, **settings})
    certificates = None if values.served_files is None else CurrentCertificates(values.served_files, "served")
    app = application(values, wyoming, certificates=certificates)
    server = GatewayServer(app, values, connection_limits(values), certificates)
    listening = listening_socket("listen", "127.0.0.1:0", 60.0)
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    with mock.patch("uvicorn.server.asyncio", _OFTEN), mock.patch(_LINGER[0], 0.5), mock.patch(_LINGER[1], 0.5):
        # Not serve(), which would take the signals of the test runner.
        serving = asyncio.create_task(server._serve([listening]))
        try:
            base = f"http{'s' * (certificates is not None)}://{address}"
            async with httpx2.AsyncClient(base_url=base, timeout=20, verify=verify) as http:
                await _started(server, serving)
                yield Gateway(address, http, server)
        finally:
            server.should_exit = True
            await serving
            listening.close()


@contextlib.asynccontextmanager
async def scripted_gateway(
    settings: dict[str, Any] | None = None, wyoming: socket.socket | None = None, **stack_settings: Any
) -> AsyncIterator[tuple[Gateway, Stack]]:
    """In front of an orchestrator of scripted stages. settings, wyoming: as of `gateway`."""
    async with (
        stack(**stack_settings) as running,
        gateway(f"127.0.0.1:{running.orchestrator.port}", wyoming, **(settings or {})) as served,
    ):
        yield served, running


async def _started(server: uvicorn.Server, serving: "asyncio.Task[None]") -> None:
    async with asyncio.timeout(20):
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
    assert server.started
