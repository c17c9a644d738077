"""WS /v1/audio/speech/stream: the conversation of vLLM-Omni's clients.

`session.config` says how to speak, `input.text` brings text, `input.done` ends an utterance and
`session.close` the connection. The server answers an utterance with `audio.start`, audio,
`audio.done` and `session.done`; what is wrong is an `error`, after which the conversation goes on,
unless it was the first message.
"""

import asyncio
import contextlib
import logging

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from cosyserve import telemetry
from cosyserve.errors import CosyserveError, InvalidRequest, Unauthenticated
from services.gateway.speech.failures import failure_of
from services.gateway.speech.speaking import Speaker
from services.gateway.vllm_omni.messages import SessionConfig, error_message, read_config, session_done
from services.gateway.vllm_omni.utterance import SpokenUtterance
from services.gateway.websocket.conversation import INTERNAL, NORMAL, POLICY, Conversation, Malformed, Message

log = logging.getLogger(__name__)
router = APIRouter()
MOST_HELD_CHARACTERS = 20_000
"""Text of an utterance that is held: until its end (`split_granularity` none), or until it has more
than blanks.
"""


class _Closed(Exception):
    """The caller sent `session.close`."""


@router.websocket("/v1/audio/speech/stream")
async def stream(socket: WebSocket) -> None:
    """Utterances one after the other until the caller hangs up."""
    await socket.accept()
    service: Speaker = socket.app.state.speaker
    conversation = Conversation(socket, service.reader_seconds, service.idle_seconds, tolerant=True)
    try:
        await Session(socket, conversation).run()
    except (_Closed, WebSocketDisconnect):
        await conversation.close(NORMAL)
    except asyncio.CancelledError:
        await conversation.cut()
        raise
    except Exception as error:
        telemetry.failed(error)
        if not isinstance(error, CosyserveError):
            log.exception("a conversation failed")
        failure = failure_of(error)
        code = POLICY if failure.status < 500 else INTERNAL
        await conversation.refuse(error_message(error), code, failure.code)


class Session:
    """One connection. Messages are handled by `_handle` between utterances and behind one that has
    failed, and by `_on_message` while one is spoken.
    """

    def __init__(self, socket: WebSocket, conversation: Conversation) -> None:
        self._socket, self._conversation = socket, conversation
        self._config: SessionConfig | None = None
        self._number = 0
        """Utterances that are over."""
        self._text = ""
        """Of the utterance that has begun and is not spoken yet."""
        self._skipping = False
        """The utterance has failed: the rest of its text is not spoken."""
        self._ended = False
        """The text of the utterance that is spoken is complete."""

    async def run(self) -> None:
        """Raises InvalidRequest when the first message is no good configuration, CallerStalled,
        WebSocketDisconnect.
        """
        while True:
            message = await self._conversation.first()
            try:
                await self._handle(message)
            except InvalidRequest as error:
                if self._config is None:
                    raise
                await self._conversation.send(error_message(error))

    async def _handle(self, message: Message) -> None:
        kind = _kind_of(message)
        if kind == "session.config":
            if self._text or self._skipping:
                raise _within_utterance()
            self._config = read_config(message)
        elif self._config is None:
            raise InvalidRequest(f"the first message is {kind!r}; expected session.config")
        elif kind == "session.close":
            raise _Closed
        elif kind == "input.text":
            await self._on_text(_text_of(message), self._config)
        elif kind == "input.done":
            await self._on_done(self._config)
        else:
            raise _unknown(kind)

    async def _on_text(self, text: str, config: SessionConfig) -> None:
        if self._skipping:
            return
        self._text += text
        if config.split_granularity != "none" and self._text.strip():
            await self._speak(config, ended=False)
        elif len(self._text) > MOST_HELD_CHARACTERS:
            size, self._text, self._skipping = len(self._text), "", True
            raise InvalidRequest(f"the utterance has {size} characters, allowed are 1 to {MOST_HELD_CHARACTERS}")

    async def _on_done(self, config: SessionConfig) -> None:
        if self._text.strip():
            await self._speak(config, ended=True)
            return
        spoken, self._skipping, self._text = int(self._skipping), False, ""
        await self._over(spoken)

    async def _speak(self, config: SessionConfig, *, ended: bool) -> None:
        """Speak the utterance whose text so far is `_text`. ended: that is all of it."""
        self._ended, text, self._text = ended, self._text, ""
        spoken = SpokenUtterance(self._socket, self._conversation, config, self._number)
        try:
            utterance = await spoken.open(text, whole=ended)
        except Unauthenticated:
            raise
        except CosyserveError as error:
            await spoken.fail(error)
        else:
            async with contextlib.aclosing(spoken):
                speaking = spoken.say(utterance, text)
                await self._conversation.speak(speaking, lambda message: self._on_message(spoken, message))
        if self._ended:
            await self._over(1)
        else:
            self._skipping = True

    async def _on_message(self, spoken: SpokenUtterance, message: Message) -> bool:
        """Whether it belongs to the utterance that is spoken."""
        if self._ended:
            return False
        try:
            kind = _kind_of(message)
            if kind == "input.text":
                await spoken.write(_text_of(message))
            elif kind == "input.done":
                # Nothing is awaited: a message that was handled halfway would be handled again.
                self._ended = True
                spoken.finish()
            elif kind == "session.close":
                raise _Closed
            elif kind == "session.config":
                raise _within_utterance()
            else:
                raise _unknown(kind)
        except InvalidRequest as error:
            await self._conversation.send(error_message(error))
        return True

    async def _over(self, spoken: int) -> None:
        await self._conversation.send(session_done(self._number, spoken))
        self._number += 1


def _kind_of(message: Message) -> str:
    """Raises InvalidRequest."""
    if isinstance(message, Malformed):
        raise InvalidRequest(message.reason)
    kind = message.get("type")
    if not isinstance(kind, str):
        raise InvalidRequest("a message has no `type` that is a string")
    return kind


def _text_of(message: Message) -> str:
    """Raises InvalidRequest."""
    text = message.get("text", "")
    if not isinstance(text, str):
        raise InvalidRequest(f"input.text: text is no string but {type(text).__name__}")
    return text


def _within_utterance() -> InvalidRequest:
    return InvalidRequest("session.config came within an utterance; send input.done first")


def _unknown(kind: str) -> InvalidRequest:
    known = "session.config, input.text, input.done, session.close"
    return InvalidRequest(f"type {kind[:64]!r} is unknown, allowed are {known}")
