"""Accepts connections of Wyoming, as many as are allowed, and ends them with the gateway."""

import asyncio
import contextlib
import socket

from cosyserve.errors import CosyserveError, Unavailable
from cosyserve.tls.certificate_files import CurrentCertificates
from cosyserve.tls.peer_names import names_of_certificate, require_allowed
from cosyserve.tls.server_connection import TlsCalls, TlsConnection
from services.gateway.speech.failures import failure_of
from services.gateway.speech.speaking import Speaker
from services.gateway.wyoming.connection import Connection, Patience
from services.gateway.wyoming.events import MOST_LINE_BYTES, Event


class WyomingServer:
    """most_connections: at once; a further one gets an `error` and is closed. certificates: None
    for plaintext. client_names: of which the certificate of a client must have one, if any.
    """

    def __init__(
        self,
        speaker: Speaker,
        patience: Patience,
        most_connections: int,
        certificates: CurrentCertificates | None = None,
        client_names: tuple[str, ...] = (),
    ) -> None:
        self._speaker, self._patience, self._most = speaker, patience, most_connections
        self._certificates, self._client_names = certificates, client_names
        self._shaking: dict[asyncio.Transport, None] = {}
        """Whose TLS handshake is not over, in the order in which they came."""
        self._server: asyncio.Server | None = None
        self._running: dict[asyncio.Task[None], Connection] = {}
        self._draining_since: float | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accept on a bound socket from now on."""
        self._server = await asyncio.get_running_loop().create_server(self._protocol, sock=listening)

    def begin_drain(self) -> None:
        """Accept nothing more, and let each connection end with what it was asked for."""
        if self._draining_since is None:
            self._draining_since = asyncio.get_running_loop().time()
        if self._server is not None:
            self._server.close()
        for connection in self._running.values():
            connection.drain()

    async def close(self, seconds: float) -> None:
        """Drain for at most `seconds`, counted from its beginning, then cut what has not ended."""
        self.begin_drain()
        passed = asyncio.get_running_loop().time() - (self._draining_since or 0.0)
        if self._running:
            await asyncio.wait(self._running, timeout=max(seconds - passed, 0.0))
        for transport in list(self._shaking):
            transport.abort()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _protocol(self) -> asyncio.BaseProtocol:
        inside = asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=MOST_LINE_BYTES), self._accept)
        if self._certificates is None:
            return inside
        calls = TlsCalls(self._shake, self._shaken, self._shaken)
        return TlsConnection(inside, self._certificates.latest().context, self._patience.event, calls)

    def _shake(self, transport: asyncio.Transport) -> None:
        self._shaking[transport] = None
        if len(self._shaking) > self._most:
            next(iter(self._shaking)).abort()

    def _shaken(self, transport: asyncio.Transport) -> None:
        self._shaking.pop(transport, None)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            require_allowed(names_of_certificate(writer.get_extra_info("peercert")), self._client_names)
            if len(self._running) >= self._most:
                raise Unavailable(f"the gateway has the {self._most} connections of Wyoming that are allowed")
        except CosyserveError as error:
            failure = failure_of(error)
            writer.write(Event("error", {"text": failure.message, "code": failure.code}).to_bytes())
            writer.close()
            return
        connection = Connection(reader, writer, self._speaker, self._patience)
        task = asyncio.create_task(connection.run())
        self._running[task] = connection
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        with contextlib.suppress(asyncio.CancelledError):
            task.result()
