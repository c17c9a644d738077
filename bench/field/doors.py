"""The ways by which a text is asked for: the gateway's `/v1/audio/speech` and gRPC."""

import contextlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import Protocol, Self

from bench.field.arrivals import Request
from bench.field.loads import GRPC
from bench.load.http_caller import HttpCaller
from cosyserve.client import AsyncClient
from cosyserve.client.types import STAGES

LONGEST_SECONDS = 60.0
"""Of a request; one that takes longer has failed, like one that is not complete when its load
closes.
"""
ADMITTED = "from admission"
"""Milliseconds from admission to the first message with sound."""
SPENT = (*STAGES, ADMITTED)
_CONNECTIONS = 4
"""Of gRPC, which share the requests of a process."""


class Door(Protocol):
    """A server that is asked."""

    def pieces(self, request: Request, spent: dict[str, float]) -> AsyncGenerator[bytes]:
        """Its sound as it arrives, 16-bit PCM. spent: filled behind the last piece with the
        milliseconds of each of SPENT, where the server reports it. Raises Refused or Overloaded for
        a request that is not admitted, CosyserveError, OSError, EOFError or ValueError for one that
        fails."""


class HttpDoor:
    """Connections are kept; a request that finds all in use opens another, in its own time."""

    def __init__(self, address: str) -> None:
        self._address, self._idle = address, list[HttpCaller]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for caller in self._idle:
            caller.close()

    async def pieces(self, request: Request, spent: dict[str, float]) -> AsyncGenerator[bytes]:
        caller = self._idle.pop() if self._idle else HttpCaller(self._address)
        async with aclosing(caller.pieces(request.text, "pcm", request.seed, request.voice)) as pieces:
            async for piece in pieces:
                yield piece
        self._idle.append(caller)


class GrpcDoor:
    """The client of this package."""

    def __init__(self, address: str) -> None:
        self._clients = [AsyncClient(address) for _ in range(_CONNECTIONS)]
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for client in self._clients:
            await self._exits.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exits.aclose()

    async def pieces(self, request: Request, spent: dict[str, float]) -> AsyncGenerator[bytes]:
        client = self._clients[request.number % len(self._clients)]
        speech = client.synthesize(
            request.text, voice=request.voice, seed=request.seed, timeout=LONGEST_SECONDS, resume_seconds=0
        )
        async with speech:
            async for chunk in speech:
                yield chunk.audio
        if speech.summary is not None:
            spent |= speech.summary.first_sound
            spent[ADMITTED] = speech.summary.first_sound_milliseconds


def door(kind: str, address: str) -> contextlib.AbstractAsyncContextManager[Door]:
    """kind: HTTP or GRPC. address: host:port."""
    return GrpcDoor(address) if kind == GRPC else HttpDoor(address)
