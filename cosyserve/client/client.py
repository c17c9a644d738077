"""The client of the public service: speech as an async iterator of chunks, checked to be whole.

async with AsyncClient("127.0.0.1:50051") as client, client.synthesize("Hello.") as speech:
    async for chunk in speech:
        play(chunk.audio)
    print(speech.header.seed, speech.summary.real_time_factor)
"""

from collections.abc import AsyncIterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack, cast

import grpc

from cosyserve.audio.encoding import Encoding
from cosyserve.client.client import VoiceCalls
from cosyserve.client.options import ConversionOptions, SynthesisOptions, UnaryOptions, request_of, setup_of
from cosyserve.client.speech import RESUME_SECONDS, Speech
from cosyserve.client.streaming_speech import StreamingSpeech
from cosyserve.client.types import Header, Mode, Summary, read_header, read_summary
from cosyserve.rpc.transport import channel_options, connect
from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import synthesis_pb2_grpc

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A minute of 48 kHz linear PCM, the longest SynthesizeUnary, is under 6 MB."""


class AsyncClient(VoiceCalls):
    """One connection to a cosyserve endpoint. Server errors are raised as the classes of
    cosyserve.errors; the trace of the caller continues in the server.

    Options (`**how`): `cosyserve.client.options`. Values that no message can carry raise
    InvalidRequest.
    """

    def __init__(self, target: str) -> None:
        """target: host:port; nothing is sent before the first call."""
        self.target = target
        self._channel = grpc.aio.insecure_channel(target, options=channel_options(_MAX_MESSAGE_BYTES))
        super().__init__(target, self._channel)
        self._stub = cast(
            "synthesis_pb2_grpc.SynthesisServiceAsyncStub", synthesis_pb2_grpc.SynthesisServiceStub(self._channel)
        )

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
        return self._hear(request_of(pb.SynthesizeRequest, how, text=text), how, timeout, resumptions, resume_seconds)

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
        return self._hear(
            request_of(pb.ConvertVoiceRequest, how, audio=audio), how, timeout, resumptions, resume_seconds
        )

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
        return StreamingSpeech(self._channel, self.target, setup, _width(how), timeout, fragments, resume_seconds)

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

    def _hear(
        self,
        request: pb.SynthesizeRequest | pb.ConvertVoiceRequest,
        how: Mapping[str, Any],
        seconds: float | None,
        resumptions: int,
        resume_seconds: float,
    ) -> Speech:
        return Speech(self._channel, self.target, request, _width(how), seconds, resumptions, resume_seconds)


def _width(how: Mapping[str, Any]) -> int:
    """Bytes of a sample."""
    encoding: Encoding = how.get("encoding", Encoding.LINEAR16)
    return encoding.bytes_per_sample
