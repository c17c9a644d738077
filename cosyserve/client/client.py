"""The client of the public service: speech as an async iterator of chunks, checked to be whole.

async with AsyncClient("127.0.0.1:50051") as client, client.synthesize("Hello.") as speech:
    async for chunk in speech:
        play(chunk.audio)
    print(speech.header.seed, speech.summary.real_time_factor)
"""

import copy
import secrets
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

import grpc

from cosyserve import telemetry
from cosyserve.client.options import ConversionOptions, SynthesisOptions, UnaryOptions, request_of, setup_of
from cosyserve.client.servers import Turns
from cosyserve.client.speech import RESUME_SECONDS, Speech
from cosyserve.client.streaming_speech import StreamingSpeech
from cosyserve.client.target_channel import channel_to
from cosyserve.client.types import (
    Header,
    Mode,
    Summary,
    VoiceDetails,
    VoiceLine,
    read_header,
    read_summary,
    read_voice_details,
    read_voice_line,
)
from cosyserve.errors import NotFound, Unavailable
from cosyserve.keys.secret import key_of_environment, metadata_of
from cosyserve.rpc.calls import as_error
from cosyserve.rpc.transport import connect
from cosyserve.tls.settings import ClientTls
from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import synthesis_pb2_grpc, voice_pb2

_PAGE = 1000
_MAKING_SECONDS = 150.0
T = TypeVar("T")


_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A minute of 48 kHz linear PCM, the longest SynthesizeUnary, is under 6 MB."""


class AsyncClient:
    """One connection to a cosyserve endpoint. Server errors are raised as the classes of
    cosyserve.errors; the trace of the caller continues in the server.

    Options (`**how`): `cosyserve.client.options`. Values that no message can carry raise
    InvalidRequest.
    """

    def __init__(
        self, target: str, api_key: str | None = None, *, tls: ClientTls | None = None, connections: int = 1
    ) -> None:
        """target: host:port, unix:/path, or dns:///name:port, whose calls are spread over all
        servers behind the name, or several of these, comma separated; nothing is sent before the
        first call. connections: to each address, over which the calls are spread. api_key: for a
        server that wants one; None: that of the variable COSYSERVE_API_KEY, if it is set; empty:
        none. tls: None for plaintext. Raises SettingsError for certificate files that cannot be
        used.
        """
        self.target = target
        self._key = key_of_environment() if api_key is None else api_key
        self._channel = channel_to(target, tls, _MAX_MESSAGE_BYTES, connections=connections)
        self._stub = cast(
            "synthesis_pb2_grpc.SynthesisServiceAsyncStub", synthesis_pb2_grpc.SynthesisServiceStub(self._channel)
        )

    def with_key(self, api_key: str) -> Self:
        """A client on the same connection whose calls have another key; empty: none. Only the
        client that made the connection closes it.
        """
        other = copy.copy(self)
        other._key = api_key
        return other

    async def connect(self, seconds: float | None = None) -> None:
        """Wait until the server can be reached. seconds and errors:
        `cosyserve.rpc.transport.connect`.
        """
        await connect(self._channel, self.target, seconds)

    async def close(self) -> None:
        """Hang up; calls in progress are cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def synthesize(
        self,
        text: str,
        *,
        timeout: float | None = None,
        resumptions: int = 0,
        resume_seconds: float = RESUME_SECONDS,
        **how: Unpack[SynthesisOptions],
    ) -> Speech:
        """Speak a text.

        timeout: seconds for the whole stream, resumptions included. resume_seconds: how long after
        a lost connection a stream that has begun is resumed where its audio stopped, with the same
        samples, also if the server was restarted meanwhile; 0: the loss is raised. resumptions: how
        many times in a row to retry in any case, also before anything has arrived, waiting for the
        server up to 30 s each time; 0: an unreachable server is an error at once.
        """
        request = request_of(pb.SynthesizeRequest, how, text=text)
        return Speech(self._channel, self.target, request, timeout, resumptions, resume_seconds, self._key)

    def convert_voice(
        self,
        audio: bytes,
        *,
        timeout: float | None = None,
        resumptions: int = 0,
        resume_seconds: float = RESUME_SECONDS,
        **how: Unpack[ConversionOptions],
    ) -> Speech:
        """Speak what `audio`, the bytes of a sound file, says with another voice. timeout,
        resumptions, resume_seconds: as in `synthesize`.
        """
        request = request_of(pb.ConvertVoiceRequest, how, audio=audio)
        return Speech(self._channel, self.target, request, timeout, resumptions, resume_seconds, self._key)

    def streaming_synthesize(
        self,
        fragments: AsyncIterable[str] | None = None,
        *,
        mode: Mode = "sentences",
        buffer_delay_milliseconds: int = 0,
        idle_timeout_milliseconds: int = 0,
        timeout: float | None = None,
        resume_seconds: float = RESUME_SECONDS,
        **how: Unpack[SynthesisOptions],
    ) -> StreamingSpeech:
        """Speak a text while it is written: by `fragments`, or by the methods of the result. mode
        and milliseconds: as in StreamingSynthesizeSetup of synthesis.proto. timeout: seconds for
        the whole stream. resume_seconds: as in `synthesize`; for it up to 200,000 characters of
        text are kept and sent again. With a buffer delay samples depend on when text came, so a
        lost stream is raised.
        """
        setup = setup_of(how, mode, buffer_delay_milliseconds, idle_timeout_milliseconds)
        return StreamingSpeech(self._channel, self.target, setup, timeout, fragments, resume_seconds, self._key)

    async def synthesize_unary(
        self,
        text: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the call's deadline, sent to the server
        **how: Unpack[UnaryOptions],
    ) -> tuple[bytes, Header, Summary]:
        """Speak a text as a whole with full attention; at most 60 s of audio."""
        response = await self._ask(
            self._stub.SynthesizeUnary, request_of(pb.SynthesizeUnaryRequest, how, text=text), timeout
        )
        return response.audio, read_header(response.header), read_summary(response.summary)

    async def require_access(self, timeout: float | None = 10.0) -> None:  # noqa: ASYNC109
        """Raises Unauthenticated, or PermissionDenied, if calls of this client would."""
        await self.model(timeout)

    async def model(self, timeout: float | None = 10.0) -> str:  # noqa: ASYNC109
        """The generation of the model that speaks: "cosyvoice2" or "cosyvoice3"; empty for a server
        of an earlier release, whose model is of CosyVoice2.
        """
        return (await self._ask(self._stub.ListVoices, pb.ListVoicesRequest(page_size=1), timeout)).model

    async def voices(self, timeout: float | None = 10.0) -> list[VoiceLine]:  # noqa: ASYNC109 - the call's deadline, sent to the server
        """All voices, ordered by id."""
        listed, token = list[VoiceLine](), ""
        while True:
            request = pb.ListVoicesRequest(page_size=_PAGE, page_token=token)
            page = await self._ask(self._stub.ListVoices, request, timeout)
            listed += map(read_voice_line, page.voices)
            token = page.next_page_token
            if not token:
                return listed

    async def voice(self, voice_id: str, timeout: float | None = 10.0) -> VoiceDetails:  # noqa: ASYNC109
        """The details of a voice."""
        request = pb.SynthesisServiceGetVoiceRequest(id=voice_id)
        return read_voice_details((await self._ask(self._stub.GetVoice, request, timeout)).voice)

    async def create_voice(
        self,
        audio: bytes,
        *,
        voice_id: str = "",
        transcript: str = "",
        language_code: str = "",
        provenance: str = "",
        display_name: str = "",
        description: str = "",
        labels: Mapping[str, str] | None = None,
        cut_prompt: bool = False,
        timeout: float | None = _MAKING_SECONDS,  # noqa: ASYNC109
    ) -> VoiceDetails:
        """Create a voice from the bytes of a sound file; ranges as in VoiceDraft of voice.proto,
        which the server checks. A lost connection is retried once: the request has an id, so that
        the voice is not created twice.
        """
        draft = voice_pb2.VoiceDraft(
            id=voice_id or f"voice-{secrets.token_hex(8)}",
            audio=audio,
            transcript=transcript,
            language_code=language_code,
            provenance=provenance,
            metadata=voice_pb2.VoiceMetadata(display_name=display_name, description=description, labels=labels or {}),
            request_id=secrets.token_hex(16),
            cut_prompt=cut_prompt,
        )
        request = pb.CreateVoiceRequest(draft=draft)
        try:
            response = await self._ask(self._stub.CreateVoice, request, timeout)
        except Unavailable:
            response = await self._ask(self._stub.CreateVoice, request, timeout)
        return read_voice_details(response.voice)

    async def update_voice(
        self,
        voice_id: str,
        *,
        display_name: str | None = None,
        description: str | None = None,
        labels: Mapping[str, str] | None = None,
        timeout: float | None = 10.0,  # noqa: ASYNC109
    ) -> VoiceDetails:
        """Change the metadata of a voice; None leaves a field unchanged."""
        given = {"display_name": display_name, "description": description, "labels": labels}
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            return await self.voice(voice_id, timeout)
        request = pb.UpdateVoiceRequest(id=voice_id, metadata=voice_pb2.VoiceMetadata(**changes))  # type: ignore[arg-type]
        request.update_mask.paths.extend(changes)
        return read_voice_details((await self._ask(self._stub.UpdateVoice, request, timeout)).voice)

    async def delete_voice(self, voice_id: str, timeout: float | None = 10.0) -> None:  # noqa: ASYNC109
        """Delete a voice for good."""
        tries = 0

        def delete(request: object, **how: Any) -> Awaitable[object]:
            nonlocal tries
            tries += 1
            return self._stub.DeleteVoice(request, **how)  # type: ignore[arg-type]

        try:
            await self._ask(delete, pb.DeleteVoiceRequest(id=voice_id), timeout)
        except NotFound:
            # The server that failed before may have deleted it.
            if tries == 1:
                raise

    async def _ask(self, method: Callable[..., Awaitable[T]], request: object, timeout: float | None) -> T:  # noqa: ASYNC109
        """Sent to another server if one is gone or full: every method may be repeated."""
        turns = Turns(self._channel)
        while True:
            metadata = [*telemetry.outgoing(), *metadata_of(self._key)]
            call = method(request, timeout=timeout, metadata=metadata)
            try:
                return await call
            except grpc.aio.AioRpcError as status:
                error = as_error(status, f"server at {self.target}")
                if not turns.away(call, error):
                    raise error from status
