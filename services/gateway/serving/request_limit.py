"""Bounds how many requests and WebSockets are served at once, and takes none while the gateway
drains. Health checks are always served.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.serving.http_connection import LINGER_BYTES, LINGER_SECONDS, MOST_HEAD_BYTES, MOST_HEADER_FIELDS
from services.gateway.speech.drain import Drain
from services.gateway.speech.failures import Failure
from services.gateway.speech.refusals import AnswerByPath

HEALTH_PATHS = ("/healthz", "/readyz", "/health")
_RETRY_SECONDS = 1.0


class RequestLimit:
    """An ASGI middleware. most_requests: HTTP requests at once; most_websockets: open WebSockets.
    refuse: the answer to one more (503), and to a head of too many fields (431).
    """

    def __init__(
        self,
        app: ASGIApp,
        drain: Drain,
        most_requests: int,
        most_websockets: int,
        refuse: AnswerByPath,
    ) -> None:
        self._app, self._drain, self._refuse = app, drain, refuse
        self._most = {"http": most_requests, "websocket": most_websockets}
        self._served = {"http": 0, "websocket": 0}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in self._most or scope["path"] in HEALTH_PATHS:
            await self._app(scope, receive, send)
            return
        failure = self._failure(scope)
        if failure is not None:
            await refuse_unread(self._refuse(scope, failure), scope, receive, send)
            return
        with self._drain.work(), self._counted(scope["type"]):
            await self._app(scope, receive, self._ending(send))

    def _failure(self, scope: Scope) -> Failure | None:
        if len(scope["headers"]) > MOST_HEADER_FIELDS:
            message = f"the head of a request has at most {MOST_HEADER_FIELDS} fields and {MOST_HEAD_BYTES} bytes"
            return Failure(431, "head_too_large", message)
        if scope["http_version"] not in ("1.0", "1.1"):
            return Failure(505, "http_version", "the gateway speaks HTTP/1.1")
        if self._drain.begun:
            return Failure(503, "draining", "the gateway is being stopped", _RETRY_SECONDS)
        kind, most = scope["type"], self._most[scope["type"]]
        if self._served[kind] < most:
            return None
        what = "requests" if kind == "http" else "WebSockets"
        return Failure(503, "too_many", f"{most} {what} are being served, which is the limit", _RETRY_SECONDS)

    @contextlib.contextmanager
    def _counted(self, kind: str) -> Iterator[None]:
        self._served[kind] += 1
        try:
            yield
        finally:
            self._served[kind] -= 1

    def _ending(self, send: Send) -> Send:
        """While the gateway drains, an answer is the last one of its connection."""

        async def send_and_say(message: Message) -> None:
            if message["type"] == "http.response.start" and self._drain.begun:
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        return send_and_say


async def refuse_unread(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request whose body has not been read, or that asks for a WebSocket.

    Send all of the answer, then read on before it counts as complete; the connection is closed.
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
