"""The Wyoming server in front of scripted stages, and a caller that reads its events with Home
Assistant's own library.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from wyoming.event import Event, async_read_event, async_write_event

from cosyserve.client import AsyncClient
from services.gateway.serving.listening import listening_socket
from services.gateway.speech.speaking import Speaker
from services.gateway.speech.voice_names import VoiceNames
from services.gateway.wyoming.connection import Patience
from services.gateway.wyoming.server import WyomingServer
from tests.stacks.scripted_stages import Stack, stack


class WyomingCaller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, *events: Event) -> None:
        for event in events:
            await async_write_event(event, self.writer)

    async def next(self) -> Event | None:
        """None when the server has closed the connection."""
        async with asyncio.timeout(20):
            return await async_read_event(self.reader)

    async def until(self, kind: str) -> list[Event]:
        """The events up to the first of this type, or an error."""
        events: list[Event] = []
        while not events or events[-1].type not in (kind, "error"):
            event = await self.next()
            assert event is not None, f"closed after {[event.type for event in events]}"
            events.append(event)
        return events


@contextlib.asynccontextmanager
async def wyoming_server(
    *, idle: float = 60.0, event: float = 5.0, reader: float = 60.0, most: int = 16, **stack_settings: Any
) -> AsyncIterator[tuple[WyomingServer, int, Stack]]:
    """The server, its port, and the stages behind it."""
    listening = listening_socket("listen", "127.0.0.1:0", 60.0)
    async with stack(**stack_settings) as running, AsyncClient(f"127.0.0.1:{running.orchestrator.port}") as client:
        speaker = Speaker(client, VoiceNames(client.voices), reader)
        server = WyomingServer(speaker, Patience(idle, event, reader), most)
        await server.start(listening)
        try:
            yield server, listening.getsockname()[1], running
        finally:
            await server.close(0.0)


@contextlib.asynccontextmanager
async def calling(port: int) -> AsyncIterator[WyomingCaller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        yield WyomingCaller(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
