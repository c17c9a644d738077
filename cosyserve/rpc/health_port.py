"""Health in plain HTTP on a port of its own, for probes that have neither certificates nor keys.

HTTP, because a kubelet, a container's health check and a collector of metrics all speak it, and a
server of two answers needs no library.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from cosyserve.errors import SettingsError
from cosyserve.tasks import cancel_all

log = logging.getLogger(__name__)
SERVING = "SERVING"
_SECONDS = 5.0
_MOST_BYTES = 4_096
_AT_ONCE = 32
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HealthPort:
    """GET /healthz: 200 while the process answers; GET /readyz: 200 if it is ready, else 503.

    A request is read for five seconds and up to 4 KiB; of more than 32 connections at once further
    ones are closed.
    """

    def __init__(self, state: Callable[[], Awaitable[str]]) -> None:
        """state: SERVING, or another word that says why not."""
        self._state = state
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int | None:
        """None: not served."""
        return None if self._server is None else int(self._server.sockets[0].getsockname()[1])

    async def start(self, place: str | socket.socket) -> None:
        """Listen on host:port, or on a bound socket; nothing is served if it is empty. Raises
        SettingsError if it cannot be listened on.
        """
        if not place:
            return
        if isinstance(place, str):
            host, _, port = place.rpartition(":")
            where: dict[str, Any] = {"host": host.strip("[]"), "port": int(port)}
        else:
            where = {"sock": place}
        try:
            self._server = await asyncio.start_server(self._accept, limit=_MOST_BYTES, backlog=_AT_ONCE, **where)
        except OSError as error:
            raise SettingsError(
                f"health_listen is {place!r}, which cannot be listened on: {error.strerror or error}"
            ) from error
        log.info("health is served on port %d", self.port)

    async def close(self) -> None:
        """Stop listening, and end what is being answered."""
        if self._server is not None:
            self._server.close()
            await cancel_all(list(self._answering))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._answering) >= _AT_ONCE:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._answer(reader, writer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # What is no request, or comes too late, is closed without an answer.
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(_response(*await self._status_of(head)))
                    await writer.drain()
        finally:
            writer.close()

    async def _status_of(self, head: bytes) -> tuple[int, str]:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path not in (b"/healthz", b"/readyz"):
            return 404, "there are /healthz and /readyz"
        if method != b"GET":
            return 405, "GET is expected"
        if path == b"/healthz":
            return 200, "ok"
        state = await self._state()
        return (200 if state == SERVING else 503), state


def _response(status: int, text: str) -> bytes:
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
