"""A gRPC caller made of bare HTTP/2 frames (RFC 9113), which stops where a client library would go
on.

Headers are literals without Huffman code or table (RFC 7541, section 6.2.2), so no HPACK state is
needed to send; what the peer sends in headers is looked at as bytes alone.
"""

import asyncio
import contextlib
import struct
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW: Final = 4
_MOST_STREAMS: Final = 3
_FRAME_BYTES: Final = 16_384
_DEFAULT_WINDOW: Final = 65_535


class RawConnection:
    """One connection; made by `connected`. Obeys the peer's flow control, answers its pings."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str) -> None:
        self.closed = asyncio.Event()
        """Set when the peer has closed the connection or said that it will."""
        self.most_streams: int | None = None
        """SETTINGS_MAX_CONCURRENT_STREAMS of the peer; None: it named none."""
        self.ended: dict[int, bytes] = {}
        """Header blocks of streams that the peer has ended, empty for a reset."""
        self.sent: defaultdict[int, int] = defaultdict(int)
        """Bytes of data by stream."""
        self._reader, self._writer, self._authority = reader, writer, authority
        self._next_stream = 1
        self._window = _DEFAULT_WINDOW
        self._stream_start = _DEFAULT_WINDOW
        self._credit: defaultdict[int, int] = defaultdict(int)
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._write_frame(_SETTINGS, 0, 0, b"", preface=_PREFACE)

    async def settled(self) -> None:
        """Return when the peer's settings are known, or it has closed."""
        await self._settled.wait()

    def call(self, method: str) -> int:
        """Begin a call of `/package.Service/Method`; returns its stream's number."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": self._authority,
            "te": "trailers",
            "content-type": "application/grpc",
        }
        block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers.items())
        self._write_frame(_HEADERS, _END_HEADERS, stream, block)
        return stream

    async def send(self, stream: int, message: bytes, *, announced: int | None = None, end: bool = True) -> int:
        """Send `message` as one gRPC message of `announced` bytes (its own length without), as far
        as flow control lets it. Returns how many bytes of it were sent when all are, or when the
        stream or the connection is over."""
        data = struct.pack(">BI", 0, len(message) if announced is None else announced) + message
        sent = 0
        while sent < len(data):
            room = min(self._window, self._stream_start + self._credit[stream], _FRAME_BYTES, len(data) - sent)
            if self.closed.is_set() or stream in self.ended:
                break
            if room <= 0:
                await self.changed()
                continue
            last = end and sent + room == len(data)
            self._write_frame(_DATA, _END_STREAM if last else 0, stream, data[sent : sent + room])
            self._window -= room
            self._credit[stream] -= room
            self.sent[stream] += room
            sent += room
            try:
                await self._writer.drain()
            except ConnectionError:
                self._over()
        return max(sent - 5, 0)

    async def changed(self) -> None:
        """Return when the peer has sent something."""
        self._changed.clear()
        await self._changed.wait()

    def end(self, stream: int) -> None:
        """Close a call's request stream."""
        self._write_frame(_DATA, _END_STREAM, stream, b"")

    async def read_on(self) -> None:
        """Take what the peer sends until it closes."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                self._take(head[3], head[4], int.from_bytes(head[5:9], "big") & 0x7FFFFFFF, payload)
        self._over()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == _INITIAL_WINDOW:
                    self._stream_start = value
                elif name == _MOST_STREAMS:
                    self.most_streams = value
            self._write_frame(_SETTINGS, _ACK, 0, b"")
            self._settled.set()
        elif kind == _PING and not flags & _ACK:
            self._write_frame(_PING, _ACK, 0, payload)
        elif kind == _WINDOW_UPDATE:
            more = int.from_bytes(payload, "big") & 0x7FFFFFFF
            if stream:
                self._credit[stream] += more
            else:
                self._window += more
        elif kind == _RESET:
            self.ended.setdefault(stream, b"")
        elif kind == _HEADERS and flags & _END_STREAM:
            self.ended[stream] = payload
        elif kind == _GOAWAY:
            self._over()
        self._changed.set()

    def _over(self) -> None:
        for event in (self.closed, self._settled, self._changed):
            event.set()

    def _write_frame(self, kind: int, flags: int, stream: int, payload: bytes, preface: bytes = b"") -> None:
        if not self.closed.is_set():
            self._writer.write(
                preface + len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
            )


def _text(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[RawConnection]:
    """A connection to host:port while the block runs. Raises OSError when there is none to be
    had.
    """
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    connection = RawConnection(reader, writer, address)
    reading = asyncio.create_task(connection.read_on())
    try:
        yield connection
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        writer.transport.abort()
