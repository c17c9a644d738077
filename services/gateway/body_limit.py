"""Bounds what request bodies hold and how long they take to arrive, before a handler sees them."""

import asyncio
import contextlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyserve.errors import InvalidRequest
from services.gateway.serving.request_limit import refuse_unread
from services.gateway.speech.failures import Failure
from services.gateway.speech.refusals import AnswerByPath
from services.gateway.speech.request_model import require_flat

SMALL_BYTES = 1 << 16
"""Bodies whose Content-Length is at most this need no turn: as many as there are connections are
held.
"""
MOST_JSON_BYTES = 1 << 20
"""Largest body that is no form with files."""
_FORMS = (b"multipart/", b"application/x-www-form-urlencoded")
_PIECE_BYTES = 1 << 18
_RETRY_SECONDS = 1.0


class _Refused(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class BodyLimit:
    """An ASGI middleware: handlers get bodies that are complete, at most `most_bytes` long, and
    arrived within `seconds`. Of bodies that may be larger than 64 KiB at most `at_once` are held,
    each from its turn until its request is answered or its audio begins; others wait, unread, for
    `seconds` at most.

    refuse: the answer to a request whose body is too large (413), too slow (408), compressed (415),
    nested too deeply (400) or gets no turn (503).
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
            try:
                _require_plain(scope)
                if length is None or length > SMALL_BYTES:
                    await self._take_turn(turn)
                body = await self._read(receive, length, self._most_bytes_of(scope))
                if body is not None and not _content_type(scope).startswith(_FORMS):
                    require_flat(body, "the body")
            except InvalidRequest as error:
                answer = self._refuse(scope, Failure(400, "invalid_json", error.message))
                await answer(scope, receive, send)
                return
            except _Refused as refused:
                await refuse_unread(self._refuse(scope, refused.failure), scope, receive, send)
                return
            if body is None:
                return
            replayed = _replayed(body, receive)
            del body  # the handler has the only copy
            await self._app(scope, replayed, _ending(turn, send))

    async def _take_turn(self, turn: contextlib.AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await turn.enter_async_context(self._turns)
        except TimeoutError as error:
            message = "too many large bodies are being received"
            raise _Refused(Failure(503, "too_many_bodies", message, _RETRY_SECONDS)) from error

    def _most_bytes_of(self, scope: Scope) -> int:
        """Only uploads are large: JSON takes many times its length once it is read."""
        form = _content_type(scope).startswith(b"multipart/form-data")
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


def _content_type(scope: Scope) -> bytes:
    declared: bytes = dict(scope["headers"]).get(b"content-type", b"")
    return declared.lower()


def _content_length(scope: Scope) -> int | None:
    """0 without a body; None if its length is not announced."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return None
    announced = headers.get(b"content-length", b"0")
    return int(announced) if announced.isdigit() else None


def _require_plain(scope: Scope) -> None:
    """A small compressed body may become a large one."""
    encoding = dict(scope["headers"]).get(b"content-encoding", b"identity").strip().lower()
    if encoding not in (b"", b"identity"):
        raise _Refused(Failure(415, "compressed_body", "a body is taken without content-encoding only"))


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body in pieces, between which other requests get their turn, then what comes from the
    connection: that the caller hung up.
    """
    size, left = len(body), memoryview(body)
    given = False

    async def replay() -> Message:
        nonlocal left, given
        if given:
            return await receive()
        if len(left) < size:
            await asyncio.sleep(0)
        piece, left = bytes(left[:_PIECE_BYTES]), left[_PIECE_BYTES:]
        given = not left
        if given:
            left = memoryview(b"")  # the handler has the only copy
        return {"type": "http.request", "body": piece, "more_body": not given}

    return replay


def _ending(turn: contextlib.AsyncExitStack, send: Send) -> Send:
    async def send_and_end(message: Message) -> None:
        await turn.aclose()
        await send(message)

    return send_and_end
