"""WS /v1/audio/stream: text in as it is written, audio, words and warnings out as they are known.

The caller sends `setup`, then `text`, `flush`, `cancel` and `end`; the server `header`, audio,
`words`, `warning` and `summary`. After a summary the connection takes another setup. A failure is a
message `error` with the object that the HTTP API sends, and closes the connection.
"""

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from cosyserve import telemetry
from cosyserve.errors import CosyserveError
from services.gateway.failures import failure_of
from services.gateway.openai.error_object import error_object
from services.gateway.speaking import speaker_of
from services.gateway.websocket.conversation import Conversation, Message
from services.gateway.websocket.messages import (
    Setup,
    Text,
    header_message,
    read_part,
    read_setup,
    summary_message,
    warning_message,
    words_message,
)

if TYPE_CHECKING:
    from cosyserve.client import StreamingSpeech

router = APIRouter()
IDLE_SECONDS = 180.0
"""Longest time between two utterances of a connection."""
_NORMAL, _POLICY, _INTERNAL, _LATER = 1000, 1008, 1011, 1013
"""Close codes of RFC 6455 and its registry."""


@router.websocket("/v1/audio/stream")
async def stream(socket: WebSocket) -> None:
    """Utterances one after the other until the caller hangs up."""
    await socket.accept()
    conversation = Conversation(socket, speaker_of(socket).reader_seconds, IDLE_SECONDS)
    try:
        while True:
            await _utterance(socket, conversation, read_setup(await conversation.first()))
    except WebSocketDisconnect:
        await conversation.close(_NORMAL)
    except CosyserveError as error:
        telemetry.failed(error)
        await _refuse(conversation, error)


async def _utterance(socket: WebSocket, conversation: Conversation, setup: Setup) -> None:
    speaker = speaker_of(socket)
    options = setup.options()
    options["voice"] = await speaker.voices.voice_of(setup.voice)
    speech = speaker.client.streaming_synthesize(
        mode=setup.mode,
        buffer_delay_milliseconds=setup.buffer_delay_milliseconds,
        idle_timeout_milliseconds=setup.idle_timeout_milliseconds,
        **options,
    )

    async def on_message(message: Message) -> None:
        part = read_part(message)
        if isinstance(part, Text):
            await speech.write(part.text)
        elif part.type == "flush":
            await speech.flush()
        elif part.type == "cancel":
            await speech.cancel()
        else:
            await speech.finish()

    async with speech:
        await conversation.speak(_send(conversation, speech, as_json=setup.audio == "json"), on_message)


async def _send(conversation: Conversation, speech: "StreamingSpeech", *, as_json: bool) -> None:
    """The speech as it becomes known, with a header in front and a summary behind it."""
    news = _News(speech)
    async for chunk in speech:
        for message in news.messages():
            await conversation.send(message)
        if as_json:
            audio = base64.b64encode(chunk.audio).decode()
            await conversation.send({"type": "audio", "start_sample": chunk.start_sample, "audio": audio})
        else:
            await conversation.send_audio(chunk.audio)
    for message in news.messages():
        await conversation.send(message)
    if speech.summary is not None:
        await conversation.send(summary_message(speech.summary))


class _News:
    """What has become known of a speech besides its audio, each fact once."""

    def __init__(self, speech: "StreamingSpeech") -> None:
        self._speech = speech
        self._headed = False
        self._words = self._warnings = 0

    def messages(self) -> Iterator[Message]:
        """Since the last call: the header, warnings, words."""
        speech = self._speech
        if speech.header is not None and not self._headed:
            yield header_message(speech.header)
            self._headed = True
        yield from map(warning_message, speech.warnings[self._warnings :])
        self._warnings = len(speech.warnings)
        if len(speech.words) > self._words:
            yield words_message(speech.words[self._words :])
            self._words = len(speech.words)


async def _refuse(conversation: Conversation, error: CosyserveError) -> None:
    failure = failure_of(error)
    code = _POLICY if failure.status < 429 else _LATER if failure.status in (429, 503) else _INTERNAL
    message: Message = {"type": "error", **error_object(failure)}
    if failure.retry_after is not None:
        message["retry_after_milliseconds"] = round(1000 * failure.retry_after)
    try:
        await conversation.send(message)
    except (WebSocketDisconnect, CosyserveError, RuntimeError):
        return
    finally:
        await conversation.close(code, failure.code)
