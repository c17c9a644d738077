"""How a caller of the fuzz sends and hears: frames of a WebSocket, or Wyoming's events over TCP."""

import contextlib
import json
import socket
import time
from abc import ABC, abstractmethod

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.fuzz.dialects.odd_values import Fields

SECONDS = 60.0
"""Longest wait for anything that has to come: the machine may be busy."""


class Ended(Exception):
    """The server has ended the connection. code: 1006 without a close frame."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Transport(ABC):
    """One connection. Sending to a server that has ended it does nothing."""

    def send(self, message: Fields) -> None:
        self.send_text(json.dumps(message))

    @abstractmethod
    def send_text(self, text: str | bytes) -> None:
        """bytes: as text, which may be no UTF-8."""

    @abstractmethod
    def send_binary(self, content: bytes) -> None:
        """What is no text."""

    @abstractmethod
    def send_fragments(self, message: Fields, size: int) -> None:
        """A message in pieces of `size` characters."""

    @abstractmethod
    def ping(self) -> None: ...

    @abstractmethod
    def receive(self, seconds: float) -> Fields | bytes:
        """Raises TimeoutError, and Ended."""

    @abstractmethod
    def close(self) -> None:
        """As the protocol says."""

    @abstractmethod
    def vanish(self) -> None:
        """Without a word."""

    @abstractmethod
    def vanish_within(self, message: Fields, size: int) -> None:
        """After the first `size` bytes of a message."""

    @abstractmethod
    def half_close(self) -> None:
        """Say that no more comes; the server may still send."""


class WebSocket(Transport):
    def __init__(self, address: str, path: str) -> None:
        # legacy: not as a context manager; the rules close it.
        self._ws = connect(
            f"ws://{address}{path}", open_timeout=SECONDS, max_size=None, ping_interval=None, legacy=True
        )

    def send_text(self, text: str | bytes) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._ws.send(text, text=True)

    def send_binary(self, content: bytes) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._ws.send(bytearray(content))

    def send_fragments(self, message: Fields, size: int) -> None:
        text = json.dumps(message)
        with contextlib.suppress(ConnectionClosed):
            self._ws.send([text[at : at + size] for at in range(0, len(text), size)])

    def ping(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._ws.ping()

    def receive(self, seconds: float) -> Fields | bytes:
        try:
            received = self._ws.recv(seconds)
        except ConnectionClosed as closed:
            raise Ended(1006 if closed.rcvd is None else closed.rcvd.code) from closed
        if isinstance(received, bytes):
            return received
        message: Fields = json.loads(received)
        return message

    def close(self) -> None:
        self._ws.close()

    def vanish(self) -> None:
        with contextlib.suppress(OSError):
            # Closing alone would leave it open for as long as the client's thread reads it.
            self._ws.socket.shutdown(socket.SHUT_RDWR)
        self._ws.close()

    def vanish_within(self, message: Fields, size: int) -> None:
        text = json.dumps(message).encode()
        head = b"\x81\xfe" + len(text).to_bytes(2, "big") if 125 < len(text) < 1 << 16 else bytes((0x81, 0x80 | 125))
        # A mask of zeros leaves the text as it is.
        with contextlib.suppress(OSError):
            self._ws.socket.sendall((head + bytes(4) + text)[: min(size, len(text))])
        self.vanish()

    def half_close(self) -> None:
        with contextlib.suppress(OSError):
            self._ws.socket.shutdown(socket.SHUT_WR)
        self._ws.close()


class WyomingLine(Transport):
    def __init__(self, address: str, path: str) -> None:
        host, _, port = address.rpartition(":")
        assert not path, "Wyoming has no paths"
        self._socket = socket.create_connection((host, int(port)), SECONDS)
        self._received = bytearray()

    def send_text(self, text: str | bytes) -> None:
        content = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        self._send(content + b"\n")

    def send_binary(self, content: bytes) -> None:
        self._send(b"\0" + content + b"\n")

    def send_fragments(self, message: Fields, size: int) -> None:
        content = json.dumps(message).encode() + b"\n"
        for at in range(0, len(content), size):
            self._send(content[at : at + size])

    def ping(self) -> None:
        """There is none below the events."""

    def receive(self, seconds: float) -> Fields | bytes:
        limit = time.monotonic() + seconds
        head: Fields = json.loads(self._take_line(limit))
        data = self._take(head.get("data_length", 0), limit)
        self._take(head.get("payload_length", 0), limit)
        return {**head, "data": json.loads(data) if data else {}}

    def close(self) -> None:
        self._socket.close()

    def vanish(self) -> None:
        """With a reset in place of an end."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._socket.close()

    def vanish_within(self, message: Fields, size: int) -> None:
        self._send((json.dumps(message).encode() + b"\n")[:size])
        self._socket.close()

    def half_close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._socket.close()

    def _send(self, content: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self._socket.settimeout(SECONDS)
            self._socket.sendall(content)

    def _take_line(self, limit: float) -> bytes:
        while b"\n" not in self._received:
            self._read(limit)
        return self._cut(self._received.index(b"\n") + 1)

    def _take(self, size: int, limit: float) -> bytes:
        """What has begun to come is waited for."""
        while len(self._received) < size:
            self._read(max(limit, time.monotonic() + SECONDS))
        return self._cut(size)

    def _read(self, limit: float) -> None:
        self._socket.settimeout(max(limit - time.monotonic(), 0.001))
        try:
            piece = self._socket.recv(1 << 16)
        except ConnectionError:
            piece = b""
        if not piece:
            raise Ended(1000)
        self._received += piece

    def _cut(self, size: int) -> bytes:
        piece = bytes(self._received[:size])
        del self._received[:size]
        return piece
