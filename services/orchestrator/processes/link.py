"""Messages between the parent and one of its processes: lines of JSON over a pair of sockets."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

_LONGEST_LINE = 64 * 1024 * 1024
"""Room for the metrics of a process with the most series."""
Message = dict[str, Any]


class Link:
    """One end. A message has its kind under `is`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> "Link":
        """The end that this socket is."""
        return cls(*await asyncio.open_connection(sock=end, limit=_LONGEST_LINE))

    def send(self, kind: str, /, **values: object) -> None:
        """Send a message; one that the other end does not live to read is lost. Calls and answers
        are few, so that nothing waits for the other end to read.
        """
        if not self._writer.is_closing():
            self._writer.write(json.dumps({"is": kind, **values}, separators=(",", ":")).encode() + b"\n")

    async def messages(self) -> AsyncIterator[Message]:
        """All messages of the other end, until it has ended."""
        while line := await self._next():
            yield json.loads(line)

    async def _next(self) -> bytes:
        try:
            line = await self._reader.readline()
        except OSError:  # it ended with unread messages
            return b""
        return line if line.endswith(b"\n") else b""

    def close(self) -> None:
        """The other end reads that this one is over."""
        self._writer.close()
