"""A DNS server of its own on loopback, over UDP and TCP, whose records a test changes."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from dnslib import AAAA, QTYPE, RCODE, RR, A, DNSRecord

from cosyserve.tasks import cancel_all

_MOST_DATAGRAM = 512


class NameServer:
    """Answers with `records`; a name that is not there does not exist (NXDOMAIN)."""

    def __init__(self) -> None:
        self.records: dict[str, list[str]] = {}
        """Addresses of each name, without its last dot."""
        self.failure = ""
        """Name of the response code that every query gets, such as SERVFAIL; `silent`: none."""
        self.ttl = 30
        self.queries: Counter[str] = Counter()
        """By kind of record."""
        self.over_tcp = 0
        self.port = 0

    def target(self, name: str, port: int) -> str:
        """The gRPC target that names this server."""
        return f"dns://127.0.0.1:{self.port}/{name}:{port}"

    def answer(self, request: bytes, most: int) -> bytes | None:
        """At most `most` bytes, otherwise marked as truncated."""
        query = DNSRecord.parse(request)
        kind, name = QTYPE[query.q.qtype], str(query.q.qname).rstrip(".").lower()
        self.queries[kind] += 1
        if self.failure == "silent":
            return None
        reply = query.reply()
        if self.failure:
            reply.header.rcode = getattr(RCODE, self.failure)
        elif name not in self.records:
            reply.header.rcode = RCODE.NXDOMAIN
        else:
            for address in self.records[name]:
                if (":" in address) == (kind == "AAAA") and kind in ("A", "AAAA"):
                    data: Any = AAAA(address) if kind == "AAAA" else A(address)
                    reply.add_answer(RR(query.q.qname, query.q.qtype, rdata=data, ttl=self.ttl))
        packed = bytes(reply.pack())
        if len(packed) <= most:
            return packed
        short = query.reply()
        short.header.tc = 1
        return bytes(short.pack())


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: NameServer) -> None:
        self._server = server

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if (answer := self._server.answer(data, _MOST_DATAGRAM)) is not None:
            self._transport.sendto(answer, addr)


@contextlib.asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    """It runs while the block does."""
    server = NameServer()
    answering: set[asyncio.Task[Any]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.create_task(answered(reader, writer)))

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
                server.over_tcp += 1
                if (answer := server.answer(request, 65_535)) is not None:
                    writer.write(len(answer).to_bytes(2, "big") + answer)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Datagrams(server), local_addr=("127.0.0.1", server.port)
    )
    try:
        yield server
    finally:
        transport.close()
        listening.close()
        await cancel_all(list(answering))
