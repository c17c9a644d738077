"""Speech as the body of an HTTP response. Status and headers wait for the first audio, so that
every failure before it has a status of its own; a later one cuts the body, which no client takes
for a complete file.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cosyserve import telemetry
from cosyserve.audio.compressed import FileFormat
from cosyserve.errors import CallerStalled, CosyserveError
from services.gateway.speech.failures import Failure, failure_of
from services.gateway.speech.request_record import current_record
from services.gateway.speech.speaking import Utterance

log = logging.getLogger(__name__)
BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
"""Audio in the OpenAPI document."""
AUDIO_CONTENT: dict[str, Any] = {each.media_type: BINARY for each in FileFormat}
"""Of an answer of any format, in the OpenAPI document."""
CUT = "cut"
"""In the scope's state, where the server puts it: what `cut` calls."""
Pieces = AsyncGenerator[bytes]
T = TypeVar("T")


class ReaderStalled(Exception):
    """The caller has read nothing for the time allowed."""


class AudioResponse(Response):
    """pieces: the body; the first one is awaited before the headers. failed: the answer when there
    is none. A caller that hangs up, or reads nothing for `reader_seconds`, closes `utterance`,
    which cancels it in every stage. headers: asked for when the first piece is there; None: those
    of the utterance.
    """

    def __init__(
        self,
        utterance: Utterance,
        pieces: Pieces,
        media_type: str,
        failed: Callable[[Failure], Response],
        reader_seconds: float,
        headers: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(media_type=media_type)
        self._headers_of_audio = headers or utterance.headers
        self._utterance, self._pieces, self._failed = utterance, pieces, failed
        self._reader_seconds = reader_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        speaking = asyncio.create_task(self._speak(scope, receive, send))
        hanging_up = asyncio.create_task(until_hung_up(receive))
        try:
            await asyncio.wait((speaking, hanging_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            hanging_up.cancel()
            if not speaking.done():
                current_record().hung_up()
                # First the call, so that the stages stop now and not when the task has ended.
                await self._utterance.aclose()
                speaking.cancel()
            await asyncio.wait((speaking,))
        if not speaking.cancelled():
            speaking.result()

    async def _speak(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._utterance), contextlib.aclosing(self._pieces) as pieces:
            try:
                first = await anext(pieces, b"")
            except Exception as error:
                _note(error)
                await self._failed(failure_of(error))(scope, receive, send)
                return
            try:
                headers = self._headers_of_audio()
                self.init_headers(headers)
                if "content-length" not in headers:
                    del self.headers["content-length"]
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await self._send(send, first)
                async for piece in pieces:
                    await self._send(send, piece)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            except Exception as error:
                _note(error)
                if isinstance(error, ReaderStalled):
                    current_record().answered(408, "caller_stalled")
                cut(scope, _reason(error))

    async def _send(self, send: Send, piece: bytes) -> None:
        if not piece:
            return
        try:
            async with asyncio.timeout(self._reader_seconds):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError as error:
            raise ReaderStalled(f"the caller has read nothing for {self._reader_seconds:g} s") from error


def cut(scope: Scope, reason: str) -> None:
    """Close the connection of an answer that has begun, without the end of its body: HTTP has no
    other sign of a failure by then. uvicorn would do so, too, and log a fault of the application.
    """
    log.warning("an answer was cut: %s", reason)
    if (close := scope.get("state", {}).get(CUT)) is not None:
        close()


def _note(error: Exception) -> None:
    telemetry.failed(error)
    if not isinstance(error, CosyserveError | ReaderStalled):
        log.error("a request failed", exc_info=error)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ReaderStalled) else failure_of(error).message


async def unless_hung_up(request: Request, working: Coroutine[Any, Any, T]) -> T:
    """The result of `working`, which is cancelled as soon as the caller hangs up. Raises
    CallerStalled then, which no one reads. The body of the request has to be read before.
    """
    work = asyncio.create_task(working)
    leaving = asyncio.create_task(until_hung_up(request.receive))
    try:
        await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            current_record().hung_up()
            raise CallerStalled("the caller hung up")
        return work.result()
    finally:
        for task in (work, leaving):
            task.cancel()
        await asyncio.wait((work, leaving))


async def until_hung_up(receive: Receive) -> None:
    """Return when the connection has ended."""
    while (await receive())["type"] != "http.disconnect":
        pass
