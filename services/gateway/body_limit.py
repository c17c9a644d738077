"""Bounds what request bodies hold and how long they take to arrive, before a handler sees them."""

import asyncio
import contextlib

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.speech.failures import Failure
from services.gateway.speech.refusals import AnswerByPath

SMALL_BYTES = 1 << 16
"""Bodies whose Content-Length is at most this need no turn: as many as there are connections are
held.
"""
MOST_JSON_BYTES = 1 << 20
"""Largest body that is no form with files."""
_DISCARDED_BYTES = 1 << 25
_DISCARDED_SECONDS = 2.0
"""What of a refused body is still read: a client that is busy sending sees the answer only if the
connection is not reset under it.
"""


class _Refused(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class BodyLimit:
    """An ASGI middleware: handlers get bodies that are complete, at most `most_bytes` long, and
    arrived within `seconds`. Of bodies that may be larger than 64 KiB at most `at_once` are held,
    each from its turn until its request is answered or its audio begins; others wait, unread.

    refuse: the answer to a request whose body is too large (413) or too slow (408).
    """

    def __init__(
        self,
        app: ASGIApp,
        most_bytes: int,
        at_once: int,
        seconds: float,
        refuse: AnswerByPath,
    ) -> None:
        self._app, self._most_bytes, self._seconds, self._refuse = app, most_bytes, seconds, refuse
        self._turns = asyncio.Semaphore(at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = _content_length(scope) if scope["type"] == "http" else 0
        if length == 0:
            await self._app(scope, receive, send)
            return
        async with contextlib.AsyncExitStack() as turn:
            if length is None or length > SMALL_BYTES:
                await turn.enter_async_context(self._turns)
            try:
                body = await self._read(receive, length, self._most_bytes_of(scope))
            except _Refused as refused:
                await _answer(self._refuse(scope, refused.failure), receive, send)
                return
            if body is None:
                return
            replayed = _replayed(body, receive)
            del body  # the handler has the only copy
            await self._app(scope, replayed, _ending(turn, send))

    def _most_bytes_of(self, scope: Scope) -> int:
        """Only uploads are large: JSON takes many times its length once it is read."""
        form = dict(scope["headers"]).get(b"content-type", b"").startswith(b"multipart/form-data")
        return self._most_bytes if form else min(self._most_bytes, MOST_JSON_BYTES)

    async def _read(self, receive: Receive, length: int | None, most_bytes: int) -> bytes | None:
        """The whole body; None if the caller hung up."""
        too_large = _Refused(Failure(413, "body_too_large", f"the body is larger than the {most_bytes} bytes allowed"))
        if length is not None and length > most_bytes:
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most_bytes:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError as error:
            late = f"the body did not arrive within {self._seconds:g} s, {size} bytes did"
            raise _Refused(Failure(408, "body_timeout", late)) from error


def _content_length(scope: Scope) -> int | None:
    """0 without a body; None if its length is not announced."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return None
    announced = headers.get(b"content-length", b"0")
    return int(announced) if announced.isdigit() else None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then what comes from the connection: that the caller hung up."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _ending(turn: contextlib.AsyncExitStack, send: Send) -> Send:
    async def send_and_end(message: Message) -> None:
        await turn.aclose()
        await send(message)

    return send_and_end


async def _answer(response: Response, receive: Receive, send: Send) -> None:
    """Send all of the answer, then read on before it counts as complete."""
    response.headers["connection"] = "close"
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
    await _discard(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARDED_SECONDS):
            while size < _DISCARDED_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
