"""The WebSockets below /v1/text-to-speech/{voice_id}.

`stream-input`: one text, written in pieces and spoken meanwhile. An empty text ends it. The last
message has `isFinal`, then the connection is closed.

`multi-stream-input`: several texts over one connection, each named by its `context_id`.

`close_context` behind a flush lets the context finish; otherwise, and when it is sent again, the
context is cancelled in every stage. A context's last message has `isFinal`; then its name is free.
"""

from fastapi import APIRouter, WebSocket

from services.gateway.elevenlabs.sockets.connection import Connection, Event, Tags, serve
from services.gateway.elevenlabs.sockets.context import Context
from services.gateway.elevenlabs.sockets.messages import Received
from services.gateway.speech.failures import Failure

router = APIRouter()
MOST_CONTEXTS = 10
"""Contexts of a connection that have not ended."""
_DEFAULT_NAME = "default"


@router.websocket("/v1/text-to-speech/{voice_id}/stream-input")
async def stream_input(socket: WebSocket, voice_id: str) -> None:
    """One utterance."""
    await serve(socket, voice_id, _talk)


async def _talk(connection: Connection) -> None:
    context = connection.start({}, alone=True)
    while context in connection.contexts:
        message = await connection.next()
        if not isinstance(message, Received) or context.ended:
            continue
        context.take(message)
        if message.text == "" and not message.flush:
            context.end()


@router.websocket("/v1/text-to-speech/{voice_id}/multi-stream-input")
async def multi_stream_input(socket: WebSocket, voice_id: str) -> None:
    """Contexts until the caller hangs up, closes the socket, or falls silent."""
    await serve(socket, voice_id, lambda connection: _Contexts(connection).talk())


class _Contexts:
    """The contexts of a connection by name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._named: dict[str, Context] = {}
        self._closed: set[Context] = set()
        """Those that finish because the caller closed them."""

    async def talk(self) -> None:
        while True:
            event = await self._connection.next()
            if event is Event.SILENCE and not self._connection.contexts:
                return
            if isinstance(event, Received):
                if event.close_socket:
                    await self._finish()
                    return
                await self._take(event)

    async def _take(self, message: Received) -> None:
        self._forget()
        name = message.context_id or _DEFAULT_NAME
        context = self._named.get(name)
        if message.close_context:
            await self._close(context)
            return
        if context is None or context.ended:
            if not message.text:
                return  # keeps the connection alive
            tags: Tags = {"contextId": name, "context_id": name}
            if len(self._connection.contexts) >= MOST_CONTEXTS:
                await self._connection.refuse(_too_many(), tags)
                return
            context = self._named[name] = self._connection.start(tags, after=context)
        context.take(message)

    async def _close(self, context: Context | None) -> None:
        if context is None:
            return
        if context.flushed and context not in self._closed:
            self._closed.add(context)
            context.end()
        else:
            await self._connection.stop(context)

    async def _finish(self) -> None:
        """End every context; the messages that still come are ignored."""
        for context in self._connection.contexts:
            if context not in self._closed:
                await self._close(context)
        while self._connection.contexts:
            await self._connection.next()

    def _forget(self) -> None:
        left = self._connection.contexts
        self._named = {name: context for name, context in self._named.items() if context in left}
        self._closed.intersection_update(left)


def _too_many() -> Failure:
    message = f"a connection has at most {MOST_CONTEXTS} contexts at once; close one before opening another"
    return Failure(400, "max_active_conversations", message)
