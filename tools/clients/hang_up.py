"""How long the stages go on working after a caller has hung up: over HTTP, a WebSocket and gRPC, by
the spans of the request.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import grpc
from websockets.asyncio.client import connect

from cosyserve.metrics import names
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tools.clients.server import Server

LIMIT_MILLISECONDS = 100.0
STAGES = frozenset(names.GRPC)
_TEXT = "This goes on for a good while longer than anybody cares to listen to it. " * 12
_SECONDS = 60.0
_BUSY = 2.0
"""Seconds between attempts at a server that refuses for now."""


@dataclass(frozen=True)
class HangUp:
    """milliseconds: by way, for each caller the time from hanging up to the end of the last span,
    and the service that sent it.
    """

    milliseconds: dict[str, list[tuple[float, str]]]

    @property
    def exceeded(self) -> list[str]:
        """The limit, where it does not hold, in words."""
        slowest = {way: max(values) for way, values in self.milliseconds.items()}
        return [
            f"{way}: {service} goes on for {most:.0f} ms after a hang-up, allowed {LIMIT_MILLISECONDS:.0f} ms"
            for way, (most, service) in slowest.items()
            if most > LIMIT_MILLISECONDS
        ]

    def lines(self) -> list[str]:
        """One for each way, for people."""
        lines = []
        for way, values in self.milliseconds.items():
            middle = median(milliseconds for milliseconds, _ in values)
            most, service = max(values)
            lines.append(f"{way}: {middle:.0f} ms (median of {len(values)}), at most {most:.0f} ms ({service})")
        return lines


async def hang_up(server: Server, times: int) -> HangUp:
    """`times` callers one after another on each way; each hangs up when it has received the first
    audio. Raises TimeoutError where none comes.
    """
    ways = {"HTTP": over_http, "WebSocket": over_websocket, "gRPC": over_grpc}
    return HangUp({way: [await _milliseconds(server, caller) for _ in range(times)] for way, caller in ways.items()})


Caller = Callable[[Server, str], Awaitable[int]]
"""Speaks with a `traceparent`; returns when it hung up, in nanoseconds since 1970."""


async def _milliseconds(server: Server, caller: Caller) -> tuple[float, str]:
    trace_id = secrets.token_hex(16)
    async with asyncio.timeout(_SECONDS):
        hung_up = await caller(server, f"00-{trace_id}-{secrets.token_hex(8)}-01")
    ends = await server.spans.ends(trace_id, STAGES)
    last, service = max((end, service) for service, end in ends.items())
    return max(0.0, (last - hung_up) / 1e6), service


async def over_http(server: Server, traceparent: str) -> int:
    """Closes the socket in the middle of the body."""
    address = urlsplit(server.http)
    body = json.dumps({"input": _TEXT, "response_format": "pcm"})
    head = (
        f"POST /v1/audio/speech HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\ntraceparent: {traceparent}\r\n\r\n"
    )
    while True:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write((head + body).encode())
            status = (await reader.readuntil(b"\r\n")).split()[1]
            await reader.readuntil(b"\r\n\r\n")
            if status == b"200":
                await reader.readexactly(4_000)
                return time.time_ns()
        finally:
            writer.transport.abort()
        if status != b"429":
            raise ValueError(f"the gateway answered {status.decode()}")
        await asyncio.sleep(_BUSY)


async def over_websocket(server: Server, traceparent: str) -> int:
    """Aborts the connection in the middle of an utterance."""
    url = f"{server.http.replace('http', 'ws', 1)}/v1/audio/stream"
    async with connect(url, additional_headers={"traceparent": traceparent}) as ws:
        for message in ({"type": "setup"}, {"type": "text", "text": _TEXT}, {"type": "end"}):
            await ws.send(json.dumps(message))
        while not isinstance(received := await ws.recv(), bytes):
            if json.loads(received)["type"] == "error":
                raise ValueError(f"the gateway answered {received}")
        ws.transport.abort()
        return time.time_ns()


async def over_grpc(server: Server, traceparent: str) -> int:
    """Cancels the call."""
    async with grpc.aio.insecure_channel(server.grpc) as channel:
        stub: Any = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        call = stub.Synthesize(
            synthesis_pb2.SynthesizeRequest(text=_TEXT), metadata=(("traceparent", traceparent),), timeout=_SECONDS
        )
        while not (await call.read()).audio:
            pass
        call.cancel()
        return time.time_ns()
