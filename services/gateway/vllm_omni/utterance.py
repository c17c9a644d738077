"""One utterance of `/v1/audio/speech/stream`, spoken as it arrives or as a whole."""

import asyncio
import contextlib
import logging

from starlette.websockets import WebSocket, WebSocketDisconnect

from cosyserve import telemetry
from cosyserve.audio.compressed import file_encoder
from cosyserve.client import StreamingSpeech
from cosyserve.errors import CallerStalled, CosyserveError, Unauthenticated
from cosyserve.spec import SAMPLE_RATE
from services.gateway.speech.encoded_speech import HeldAudio, encoded, whole_file
from services.gateway.speech.request_record import CountedUtterance, utterance_of
from services.gateway.speech.speaking import Utterance, speaker_of
from services.gateway.vllm_omni.messages import (
    SessionConfig,
    audio_chunk,
    audio_done,
    audio_start,
    error_message,
    timestamps_of,
)
from services.gateway.websocket.conversation import Conversation

log = logging.getLogger(__name__)


class SpokenUtterance:
    """The answer to one utterance: `audio.start`, audio, `audio.done`. number: of the utterance in
    its connection.
    """

    def __init__(self, socket: WebSocket, conversation: Conversation, config: SessionConfig, number: int) -> None:
        self._speaker = speaker_of(socket)
        self._held: HeldAudio = socket.app.state.held
        self._conversation, self._config, self._number = conversation, config, number
        self._text = ""
        self._utterance: Utterance | None = None
        self._writing: StreamingSpeech | None = None
        """The call, where the text still arrives."""
        self._finishing: asyncio.Task[None] | None = None
        self._started = False
        self._sent = 0

    async def say(self, utterance: Utterance, text: str) -> None:
        """Send all of the answer; a failure is a message `error` and an `audio.done` that says so.
        utterance, text: what `open` returned and was given. Raises WebSocketDisconnect, and
        CallerStalled for a caller that reads nothing.
        """
        self._text = text
        try:
            if self._writing is not None:
                await self._writing.write(text)
            with utterance_of("vllm_omni") as counted:
                send = self._stream if self._config.stream_audio else self._send_file
                await send(utterance, counted)
        except (WebSocketDisconnect, CallerStalled, Unauthenticated):
            raise
        except Exception as error:
            await self.fail(error)

    async def open(self, text: str, *, whole: bool) -> Utterance:
        """Prepare the call. whole: no more text comes. Errors: those of `cosyserve.client`."""
        options, voice = self._config.options(), self._config.voice
        if whole:
            self._utterance = await self._speaker.speak(text, voice, options)
            return self._utterance
        options["voice"] = await self._speaker.voices.voice_of(voice)
        self._writing = self._speaker.client.streaming_synthesize(**options)
        self._utterance = Utterance(self._writing, figures=self._speaker.figures)
        return self._utterance

    async def write(self, text: str) -> None:
        """More text. The error of a call that has ended is the one that `say` reports."""
        self._text += text
        if self._writing is not None:
            with contextlib.suppress(CosyserveError):
                await self._writing.write(text)

    def finish(self) -> None:
        """No more text comes."""
        if self._writing is not None:
            self._finishing = asyncio.create_task(_finish(self._writing))

    async def aclose(self) -> None:
        """Cancel what is still spoken, in every stage."""
        if self._utterance is not None:
            await self._utterance.aclose()
        if self._finishing is not None:
            self._finishing.cancel()
            await asyncio.wait((self._finishing,))

    async def fail(self, error: Exception) -> None:
        """Say that the utterance failed, and that audio which was sent is not all of it."""
        telemetry.failed(error)
        if not isinstance(error, CosyserveError):
            log.error("an utterance failed", exc_info=error)
        partial = {"partial_audio": True, "action": "discard"} if self._sent else {}
        await self._conversation.send(error_message(error) | partial)
        await self._start()
        await self._conversation.send(audio_done(self._number, self._sent, failed=True))

    async def _stream(self, utterance: Utterance, counted: CountedUtterance) -> None:
        encoder, chunks = file_encoder(self._config.response_format), 0
        async with contextlib.aclosing(encoded(utterance, encoder)) as pieces:
            async for piece in pieces:
                await self._start()
                counted.sends()
                if self._config.word_timestamps:
                    await self._conversation.send(audio_chunk(self._number, chunks, self._sent, piece, None))
                else:
                    await self._conversation.send_audio(piece)
                chunks += 1
                self._sent += len(piece)
        await self._start()
        if self._config.word_timestamps:
            times = timestamps_of(utterance.speech.words)
            await self._conversation.send(audio_chunk(self._number, chunks, self._sent, b"", times))
        await self._conversation.send(audio_done(self._number, self._sent, failed=False))

    async def _send_file(self, utterance: Utterance, counted: CountedUtterance) -> None:
        with self._held.room() as room:
            data = b"".join(await whole_file(utterance, self._config.response_format, SAMPLE_RATE, room))
            await self._start()
            counted.sends()
            await self._conversation.send_audio(data)
            self._sent = len(data)
        await self._conversation.send(audio_done(self._number, self._sent, failed=False))

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await self._conversation.send(audio_start(self._number, self._text, self._config))


async def _finish(speech: StreamingSpeech) -> None:
    with contextlib.suppress(CosyserveError):
        await speech.finish()
