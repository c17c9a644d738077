"""The client for programs without asyncio: the calls of `AsyncClient`, which block.

with Client("127.0.0.1:50051") as client, client.synthesize("Hello.") as speech:
    for chunk in speech:
        play(chunk.audio)
    print(speech.header.seed, speech.summary.real_time_factor)

Each client runs an `AsyncClient` on an event loop in a thread of its own. Its methods may be called
from several threads at once. One thread at a time iterates a `BlockingSpeech`; another one may
write its text. A thread that writes a long text before it reads any audio waits once the
server has received all that it accepts in advance (StreamingSynthesize in synthesis.proto).

Programs that run an event loop use `AsyncClient`, since these calls would block it. A client does
not survive a fork.
"""

import copy
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self, Unpack

from cosyserve.client.client import AsyncClient
from cosyserve.client.loop_thread import LoopThread, arriving
from cosyserve.client.options import ConversionOptions, SynthesisOptions, UnaryOptions
from cosyserve.client.speech import RESUME_SECONDS, Speech
from cosyserve.client.streaming_speech import StreamingSpeech
from cosyserve.client.types import Chunk, Header, Mode, Summary, TextWarning, VoiceDetails, VoiceLine, WordTime
from cosyserve.tls.settings import ClientTls


class BlockingSpeech:
    """Iterate to receive chunks; nothing is sent before the first step. Leaving the `with` block,
    or close(), cancels the call if it is still in progress.
    """

    def __init__(self, loop: LoopThread, speech: Speech) -> None:
        self._loop, self._speech = loop, speech

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        chunk = self._loop.run(self._step())
        if chunk is None:
            raise StopIteration
        return chunk

    async def _step(self) -> Chunk | None:
        # A coroutine may not end with StopAsyncIteration.
        return await anext(self._speech, None)

    def read(self) -> bytes:
        """All remaining audio."""
        return self._loop.run(self._speech.read())

    def close(self) -> None:
        """Cancel the call if it is still in progress."""
        if not self._loop.stopped:
            self._loop.run(self._speech.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def header(self) -> Header | None:
        """Set with the first chunk."""
        return self._speech.header

    @property
    def summary(self) -> Summary | None:
        """Set when the iteration has ended: without it the audio is not complete."""
        return self._speech.summary

    @property
    def words(self) -> list[WordTime]:
        """When each word is spoken, as far as the server has sent it."""
        return self._speech.words

    @property
    def warnings(self) -> list[TextWarning]:
        """What of the text is not spoken as it is written, as far as the server has sent it."""
        return self._speech.warnings

    @property
    def resumed(self) -> int:
        """How often the stream was resumed after a lost connection."""
        return self._speech.resumed

    @property
    def first_byte_seconds(self) -> float | None:
        """From the start of the call to its first audio."""
        return self._speech.first_byte_seconds

    @property
    def first_audible_seconds(self) -> float | None:
        """From the start of the call to the first sample above -40 dBFS."""
        return self._speech.first_audible_seconds


class BlockingStreamingSpeech(BlockingSpeech):
    """Speech of a text that is still being written."""

    def __init__(self, loop: LoopThread, speech: StreamingSpeech) -> None:
        super().__init__(loop, speech)
        self._writer = speech

    def write(self, fragment: str) -> None:
        """Write more text, in pieces of any length."""
        self._loop.run(self._writer.write(fragment))

    def flush(self) -> None:
        """Have the text so far spoken now, as if the sentence ended here."""
        self._loop.run(self._writer.flush())

    def cancel(self) -> None:
        """Have the server stop at once; the iteration ends with the audio sent until then."""
        self._loop.run(self._writer.cancel())

    def finish(self) -> None:
        """End the text."""
        self._loop.run(self._writer.finish())


class Client:
    """One connection to a cosyserve endpoint. Server errors are raised as the classes of
    cosyserve.errors; a trace of the caller goes on in the server.

    What can be chosen besides the text (`**how`): `cosyserve.client.options`. Values that no
    message can carry raise InvalidRequest.
    """

    def __init__(self, target: str, api_key: str | None = None, *, tls: ClientTls | None = None) -> None:
        """Arguments as of `AsyncClient`."""
        self.target = target
        self._loop = LoopThread()
        self._closed = False
        self._client = self._loop.call(lambda: AsyncClient(target, api_key, tls=tls))

    def with_key(self, api_key: str) -> Self:
        """As `AsyncClient.with_key`."""
        other = copy.copy(self)
        other._client = self._client.with_key(api_key)
        return other

    def require_access(self, timeout: float | None = 10.0) -> None:
        """Raises Unauthenticated, or PermissionDenied, if calls of this client would."""
        self._loop.run(self._client.require_access(timeout))

    def model(self, timeout: float | None = 10.0) -> str:
        """The generation of the model that speaks; see `AsyncClient.model`."""
        return self._loop.run(self._client.model(timeout))

    def connect(self, seconds: float | None = None) -> None:
        """Wait until the server can be called; `AsyncClient.connect` says what is raised."""
        self._loop.run(self._client.connect(seconds))

    def close(self) -> None:
        """Cancel the calls in progress and close the connection."""
        if not self._closed:
            self._closed = True
            try:
                self._loop.run(self._client.close())
            finally:
                self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def synthesize(
        self,
        text: str,
        *,
        timeout: float | None = None,
        resumptions: int = 0,
        resume_seconds: float = RESUME_SECONDS,
        **how: Unpack[SynthesisOptions],
    ) -> BlockingSpeech:
        """Speak a text; arguments as of `AsyncClient.synthesize`."""
        return BlockingSpeech(
            self._loop,
            self._loop.call(
                lambda: self._client.synthesize(
                    text, timeout=timeout, resumptions=resumptions, resume_seconds=resume_seconds, **how
                )
            ),
        )

    def convert_voice(
        self,
        audio: bytes,
        *,
        timeout: float | None = None,
        resumptions: int = 0,
        resume_seconds: float = RESUME_SECONDS,
        **how: Unpack[ConversionOptions],
    ) -> BlockingSpeech:
        """Speak what is said in `audio` with another voice; arguments as of
        `AsyncClient.convert_voice`."""
        return BlockingSpeech(
            self._loop,
            self._loop.call(
                lambda: self._client.convert_voice(
                    audio, timeout=timeout, resumptions=resumptions, resume_seconds=resume_seconds, **how
                )
            ),
        )

    def streaming_synthesize(
        self,
        fragments: Iterable[str] | None = None,
        *,
        mode: Mode = "sentences",
        buffer_delay_milliseconds: int = 0,
        idle_timeout_milliseconds: int = 0,
        timeout: float | None = None,
        resume_seconds: float = RESUME_SECONDS,
        **how: Unpack[SynthesisOptions],
    ) -> BlockingStreamingSpeech:
        """Speak a text while it is written: by `fragments`, which a daemon thread iterates, or
        by the methods of what is returned; arguments as of `AsyncClient.streaming_synthesize`."""
        arriving_text = None if fragments is None else arriving(fragments)
        speech = self._loop.call(
            lambda: self._client.streaming_synthesize(
                arriving_text,
                mode=mode,
                buffer_delay_milliseconds=buffer_delay_milliseconds,
                idle_timeout_milliseconds=idle_timeout_milliseconds,
                timeout=timeout,
                resume_seconds=resume_seconds,
                **how,
            )
        )
        return BlockingStreamingSpeech(self._loop, speech)

    def synthesize_unary(
        self, text: str, *, timeout: float | None = None, **how: Unpack[UnaryOptions]
    ) -> tuple[bytes, Header, Summary]:
        """Speak a text as a whole under full attention; at most 60 s of audio."""
        return self._loop.run(self._client.synthesize_unary(text, timeout=timeout, **how))

    def voices(self, timeout: float | None = 10.0) -> list[VoiceLine]:
        """All voices, ordered by id."""
        return self._loop.run(self._client.voices(timeout))

    def voice(self, voice_id: str, timeout: float | None = 10.0) -> VoiceDetails:
        """What is known of a voice."""
        return self._loop.run(self._client.voice(voice_id, timeout))

    def create_voice(self, audio: bytes, **draft: Any) -> VoiceDetails:
        """Make a voice of the bytes of a sound file; arguments as of `AsyncClient.create_voice`."""
        return self._loop.run(self._client.create_voice(audio, **draft))

    def update_voice(self, voice_id: str, **changes: Any) -> VoiceDetails:
        """Change what people call a voice; arguments as of `AsyncClient.update_voice`."""
        return self._loop.run(self._client.update_voice(voice_id, **changes))

    def delete_voice(self, voice_id: str, timeout: float | None = 10.0) -> None:
        """Delete a voice for good."""
        self._loop.run(self._client.delete_voice(voice_id, timeout))
