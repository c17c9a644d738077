"""WS /v1/text-to-speech/{voice_id}/stream-input: one text, written in pieces and spoken meanwhile.

An empty text ends it. The last message has `isFinal`, then the connection is closed.
"""

from fastapi import APIRouter, WebSocket

from services.gateway.elevenlabs.sockets.connection import Connection, serve
from services.gateway.elevenlabs.sockets.messages import Received

router = APIRouter()


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
