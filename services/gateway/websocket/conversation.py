"""One WebSocket on which utterances follow one another: while one is spoken, messages go on
arriving, and when the connection ends, what is being spoken is cancelled in every stage.
"""

import asyncio
import collections
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from cosyserve.errors import CallerStalled, CosyserveError, InvalidRequest
from services.gateway.speech.drain import drain_of
from services.gateway.speech.failures import Failure
from services.gateway.speech.request_model import require_flat

Message = dict[str, Any]
MOST_CHARACTERS = 100_000
"""Longest message in characters."""
_MOST_AHEAD = 32
"""Messages that are received before they can be handled; then the socket is not read, nor when they
have more than MOST_CHARACTERS together.
"""
NORMAL, LOST, POLICY, INTERNAL, RESTARTS, LATER = 1000, 1006, 1008, 1011, 1012, 1013
"""Close codes of RFC 6455 and its registry: all is said; no closing handshake; the caller's fault;
ours; the server restarts; no room at present.
"""
OVER = "over"
"""In the scope's state, where the server puts it: an Event that is set when the connection has
ended, also behind messages that have not been received.
"""


class Malformed(Message):
    """What arrived in place of a message. reason: for the caller."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


class Conversation:
    """socket: accepted. reader_seconds: after which a caller that reads nothing is disconnected;
    idle_seconds: after which one that opens no utterance is. tolerant: what is no message is handed
    over as `Malformed` instead of raising InvalidRequest.
    """

    def __init__(
        self, socket: WebSocket, reader_seconds: float, idle_seconds: float, *, tolerant: bool = False
    ) -> None:
        self._socket, self._tolerant = socket, tolerant
        self._reader_seconds, self._idle_seconds = reader_seconds, idle_seconds
        self._receiving: asyncio.Task[tuple[Message, int]] | None = None
        """Outlives an utterance: cancelling it could lose a message."""
        self._ahead: collections.deque[tuple[Message, int]] = collections.deque()
        """Received and not yet handled, with their characters."""
        self._characters_ahead = 0
        self._drained = False
        self._idle_until = time.monotonic() + idle_seconds

    async def first(self, *, engaged: bool = False) -> Message:
        """The next message, before any utterance. Raises CallerStalled without one in time,
        InvalidRequest for what is no JSON object, WebSocketDisconnect, also when the gateway is
        being stopped: then `close` says so, whatever code it is given. engaged: utterances are
        spoken beside this call, so that a gateway that is being stopped goes on with it.
        """
        drain = drain_of(self._socket)
        if drain.begun and not engaged:
            raise self._restarting()
        if self._ahead:
            return self._take()
        receiving, ending = self._receive(), asyncio.create_task(drain.until_begun())
        try:
            await asyncio.wait(
                (receiving,) if engaged else (receiving, ending),
                timeout=max(self._idle_until - time.monotonic(), 0.0),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            ending.cancel()
        if drain.begun and not engaged:
            raise self._restarting()
        if not receiving.done():
            raise CallerStalled(f"nothing was spoken for {self._idle_seconds:g} s")
        self._receiving = None
        return receiving.result()[0]

    def renew_idle_time(self) -> None:
        """Count the idle time from now."""
        self._idle_until = time.monotonic() + self._idle_seconds

    async def speak(
        self, speaking: Awaitable[None], on_message: Callable[[Message], Coroutine[Any, Any, bool]]
    ) -> None:
        """Run `speaking` to its end, and `on_message` for each message that arrives meanwhile, one
        after the other, until it says that the message is not for this utterance: then it is the
        first one of the next. An error of one cancels the other and is raised.
        """
        speech = asyncio.ensure_future(speaking)
        over = self._socket.scope.get("state", {}).get(OVER, asyncio.Event())
        leaving = asyncio.create_task(over.wait())
        handling: asyncio.Task[bool] | None = None
        belongs = True
        try:
            while not speech.done():
                if handling is None and belongs and self._ahead:
                    handling = asyncio.create_task(on_message(self._ahead[0][0]))
                receiving = self._receive() if self._has_room() else None
                tasks = [task for task in (speech, handling, receiving, leaving) if task is not None]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    raise WebSocketDisconnect(LOST)
                if receiving is not None and receiving.done():
                    self._receiving = None
                    self._ahead.append(receiving.result())
                    self._characters_ahead += self._ahead[-1][1]
                if handling is not None and handling.done():
                    belongs, handling = handling.result(), None
                    if belongs:
                        self._take()
            await speech
        finally:
            for task in (speech, handling, leaving):
                if task is not None:
                    task.cancel()
                    await asyncio.wait((task,))
            self.renew_idle_time()

    async def send(self, message: Message) -> None:
        """Raises CallerStalled when the caller does not read it in time."""
        await self._send(self._socket.send_text(json.dumps(message, ensure_ascii=False, separators=(",", ":"))))

    async def send_audio(self, audio: bytes) -> None:
        """A binary message; errors as `send`."""
        await self._send(self._socket.send_bytes(audio))

    async def close(self, code: int, reason: str = "") -> None:
        """Close the connection, if it is still open. code: 1012 in its place while the gateway is
        being stopped.
        """
        if self._drained:
            code, reason = RESTARTS, "the server restarts"
        if self._receiving is not None:
            self._receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, InvalidRequest):
                await self._receiving
        with contextlib.suppress(RuntimeError, WebSocketDisconnect, CallerStalled):
            await self._send(self._socket.close(code, reason[:120]))

    async def cut(self) -> None:
        """Close the connection whose task is cancelled: the gateway ends before what is spoken."""
        self._drained = True
        await self.close(RESTARTS)

    async def refuse(self, message: Message, code: int, reason: str) -> None:
        """Send what failed, if the caller is still there, and close the connection."""
        try:
            with contextlib.suppress(WebSocketDisconnect, CosyserveError, RuntimeError):
                await self.send(message)
        finally:
            await self.close(code, reason)

    async def _send(self, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._reader_seconds):
                await sending
        except TimeoutError as error:
            raise CallerStalled(f"the caller has read nothing for {self._reader_seconds:g} s") from error

    def _has_room(self) -> bool:
        return len(self._ahead) < _MOST_AHEAD and self._characters_ahead <= MOST_CHARACTERS

    def _take(self) -> Message:
        message, characters = self._ahead.popleft()
        self._characters_ahead -= characters
        return message

    def _restarting(self) -> WebSocketDisconnect:
        self._drained = True
        return WebSocketDisconnect(RESTARTS)

    def _receive(self) -> asyncio.Task[tuple[Message, int]]:
        if self._receiving is None:
            self._receiving = asyncio.create_task(self._message())
        return self._receiving

    async def _message(self) -> tuple[Message, int]:
        """With its characters."""
        received = await self._socket.receive()
        if received["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(received.get("code", LOST), received.get("reason"))
        text = received.get("text")
        try:
            return read_object(text), len(text or "")
        except InvalidRequest as error:
            if not self._tolerant:
                raise
            return Malformed(error.message), len(error.message)


def close_code(failure: Failure) -> int:
    """With which code a connection is closed for this failure."""
    if failure.status < 429:
        return POLICY
    return LATER if failure.status in (429, 503) else INTERNAL


def read_object(text: str | None) -> Message:
    """text: None for a binary frame. Raises InvalidRequest for what is no JSON object."""
    if text is None:
        raise InvalidRequest("messages are JSON in text frames; a binary frame came")
    if len(text) > MOST_CHARACTERS:
        raise InvalidRequest(f"a message has {len(text)} characters, allowed are {MOST_CHARACTERS}")
    require_flat(text.encode(errors="replace"), "a message")
    try:
        message = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"a message is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise InvalidRequest(f"a message is no JSON object but {type(message).__name__}")
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("a message holds half of a surrogate pair, which is no character") from error
    return message
