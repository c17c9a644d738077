"""Health and metrics in plain HTTP on a port of their own, for probes and scrapers that have
neither certificates nor keys.

HTTP, because a kubelet, a container's health check and a collector of metrics all speak it, and a
server of three answers needs no library.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from cosyserve.errors import SettingsError
from cosyserve.metrics import provider
from cosyserve.tasks import cancel_all

log = logging.getLogger(__name__)
SERVING = "SERVING"
_SECONDS = 5.0
_MOST_BYTES = 4_096
_AT_ONCE = 32
_PATHS = (b"/healthz", b"/readyz", b"/metrics")
_PLAIN = "text/plain; charset=utf-8"
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


Page = Callable[[str], tuple[str, bytes] | None]


class HealthPort:
    """GET /healthz: 200 while the process answers; GET /readyz: 200 if it is ready, else 503; GET
    /metrics: the metrics, in OpenMetrics if the header Accept asks for it.

    A request is read, and its answer taken, within five seconds; it has up to 4 KiB. Of more than
    32 connections at once further ones are closed.
    """

    def __init__(self, state: Callable[[], Awaitable[str]], page: Page = provider.page) -> None:
        """state: SERVING, or another word that says why not. page: content type and body for a
        header Accept, None without metrics; called in a thread.
        """
        self._state, self._page = state, page
        self._scraping = asyncio.Lock()
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
                    writer.write(_response(*await self._answer_to(head)))
                    writer.close()
                    await writer.wait_closed()
        finally:
            # A client that has not read its answer by now would hold the connection without limit.
            writer.transport.abort()

    async def _answer_to(self, head: bytes) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path not in _PATHS:
            return 404, _PLAIN, b"there are /healthz, /readyz and /metrics\n"
        if method != b"GET":
            return 405, _PLAIN, b"GET is expected\n"
        if path == b"/metrics":
            return await self._metrics(_header(head, "accept"))
        state = "ok" if path == b"/healthz" else await self._state()
        return (200 if state in ("ok", SERVING) else 503), _PLAIN, f"{state}\n".encode()

    async def _metrics(self, accept: str) -> tuple[int, str, bytes]:
        # One after the other: several scrapers at once would only wait for each other in threads.
        async with self._scraping:
            page = await asyncio.to_thread(self._page, accept)
        return (404, _PLAIN, b"this process counts no metrics\n") if page is None else (200, *page)


def _header(head: bytes, name: str) -> str:
    """All values of a header field, joined as if they were one; empty if it is missing."""
    fields = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return ",".join(value.strip() for field, _, value in fields if field.strip().lower() == name)


def _response(status: int, kind: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: {kind}\r\n"
        f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
