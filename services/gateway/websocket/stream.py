"""WS /v1/audio/stream: text in as it is written, audio, words and warnings out as they are known.

The caller sends `setup`, then `text`, `flush`, `cancel` and `end`; the server `header`, audio,
`words`, `warning` and `summary`. After a summary the connection takes another setup. A failure is a
message `error` with the object that the HTTP API sends, and closes the connection.
"""

import asyncio
import base64
import logging
from collections.abc import Iterator

from fastapi import APIRouter, WebSocket
from opentelemetry import context, propagate
from starlette.websockets import WebSocketDisconnect

from cosyserve import telemetry
from cosyserve.client import StreamingSpeech
from cosyserve.client.types import Chunk
from cosyserve.errors import CosyserveError, InvalidRequest
from cosyserve.spec import SAMPLE_RATE
from services.gateway.openai.error_object import error_object
from services.gateway.speech.failures import failure_of
from services.gateway.speech.request_record import CountedUtterance, utterance_of
from services.gateway.speech.speaking import Speaker, checked, speaker_of
from services.gateway.websocket.conversation import NORMAL, Conversation, Message, close_code
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

log = logging.getLogger(__name__)
router = APIRouter()
_PARTS = ("text", "flush", "cancel", "end")


@router.websocket("/v1/audio/stream")
async def stream(socket: WebSocket) -> None:
    """Utterances one after the other until the caller hangs up."""
    await socket.accept()
    service: Speaker = socket.app.state.speaker
    conversation = Conversation(socket, service.reader_seconds, service.idle_seconds)
    try:
        message = await conversation.first()
        while True:
            await _utterance(socket, conversation, read_setup(message))
            # What belongs to an utterance may have crossed its summary.
            while (message := await conversation.first()).get("type") in _PARTS:
                pass
    except WebSocketDisconnect:
        await conversation.close(NORMAL)
    except asyncio.CancelledError:
        await conversation.cut()
        raise
    except Exception as error:
        telemetry.failed(error)
        if not isinstance(error, CosyserveError):
            log.exception("a conversation failed")
        failure = failure_of(error)
        message = {"type": "error", **error_object(failure), **failure.retry}
        await conversation.refuse(message, close_code(failure), failure.code)


async def _utterance(socket: WebSocket, conversation: Conversation, setup: Setup) -> None:
    speaker = speaker_of(socket).with_key(checked(setup.api_key))
    options = setup.options()
    options["voice"] = await speaker.voices.voice_of(setup.voice)
    speech = speaker.client.streaming_synthesize(
        mode=setup.mode,
        buffer_delay_milliseconds=setup.buffer_delay_milliseconds,
        idle_timeout_milliseconds=setup.idle_timeout_milliseconds,
        **options,
    )
    # A trace is one utterance: a caller may continue another trace in each.
    caller = propagate.extract({"traceparent": setup.traceparent}) if setup.traceparent else context.get_current()
    with telemetry.call_span("gateway utterance", caller):
        try:
            with utterance_of("websocket") as counted:
                async with speech:
                    utterance = _Utterance(conversation, speech, counted, as_json=setup.audio == "json")
                    await conversation.speak(utterance.send(), utterance.on_message)
        except Exception as error:
            telemetry.failed(error)
            raise


class _Utterance:
    """One setup and what follows it."""

    def __init__(
        self, conversation: Conversation, speech: StreamingSpeech, counted: CountedUtterance, *, as_json: bool
    ) -> None:
        self._conversation, self._speech, self._as_json = conversation, speech, as_json
        self._counted = counted
        self._ended = self._cut = self._cancelled = False

    async def on_message(self, message: Message) -> bool:
        """Whether the message was one of this utterance."""
        if (self._ended or self._cancelled) and message.get("type") == "setup":
            return False
        part = read_part(message)
        if self._cancelled:
            return True
        if self._ended:
            if isinstance(part, Text) or part.type != "cancel":
                raise InvalidRequest("behind `end` only `cancel` or the next `setup` may come")
            # The speech service reads nothing more of this call.
            self._cut = self._cancelled = True
            await self._speech.close()
        elif isinstance(part, Text):
            await self._speech.write(part.text)
        elif part.type == "flush":
            await self._speech.flush()
        elif part.type == "cancel":
            self._cancelled = True
            await self._speech.cancel()
        else:
            self._ended = True
            await self._speech.finish()
        return True

    async def send(self) -> None:
        """The speech as it becomes known, with a header in front and a summary behind it."""
        news, samples = _News(self._speech), 0
        try:
            async for chunk in self._speech:
                for message in news.messages():
                    await self._conversation.send(message)
                await self._send_audio(chunk)
                samples = chunk.start_sample + len(chunk.audio) // self._speech.bytes_per_sample
        except asyncio.CancelledError:
            if not self._cut:
                raise
            rate = self._speech.header.sample_rate if self._speech.header else SAMPLE_RATE
            await self._conversation.send({"type": "summary", "cancelled": True, "audio_seconds": samples / rate})
            return
        for message in news.messages():
            await self._conversation.send(message)
        if self._speech.summary is not None:
            await self._conversation.send(summary_message(self._speech.summary))

    async def _send_audio(self, chunk: Chunk) -> None:
        self._counted.sends()
        if not self._as_json:
            await self._conversation.send_audio(chunk.audio)
            return
        audio = base64.b64encode(chunk.audio).decode()
        await self._conversation.send({"type": "audio", "start_sample": chunk.start_sample, "audio": audio})


class _News:
    """What has become known of a speech besides its audio, each fact once."""

    def __init__(self, speech: StreamingSpeech) -> None:
        self._speech = speech
        self._headed = False
        self._words = self._warnings = 0

    def messages(self) -> Iterator[Message]:
        """Since the last call: the header, warnings, words."""
        speech = self._speech
        if speech.header is not None and not self._headed:
            yield header_message(speech.header, telemetry.trace_id())
            self._headed = True
        yield from map(warning_message, speech.warnings[self._warnings :])
        self._warnings = len(speech.warnings)
        if len(speech.words) > self._words:
            yield words_message(speech.words[self._words :])
            self._words = len(speech.words)
