"""The answer to a request whose body has not been read, or that asks for a WebSocket."""

import asyncio
import contextlib

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.gateway.serving.http_connection import LINGER_BYTES, LINGER_SECONDS


async def refuse_unread(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send all of the answer, then read on before it counts as complete; the connection is closed.
    In place of a WebSocket the answer is sent as it is.
    """
    if scope["type"] == "websocket":
        start = {"status": response.status_code, "headers": response.raw_headers}
        await send({"type": "websocket.http.response.start", **start})
        await send({"type": "websocket.http.response.body", "body": bytes(response.body), "more_body": False})
        return
    response.headers["connection"] = "close"
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
    await _discard(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while size < LINGER_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
