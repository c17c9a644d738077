"""The client of the public door: speech as an async iterator of chunks, checked to be whole.

async with Client("127.0.0.1:50051") as client, client.synthesize("Hello.") as speech:
    async for chunk in speech:
        play(chunk.audio)
    print(speech.header.seed, speech.summary.real_time_factor)
"""

from collections.abc import AsyncIterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack, cast

import grpc

from cosyserve.audio import Encoding
from cosyserve.speech import Speech
from cosyserve.streaming_speech import StreamingSpeech
from cosyserve.synthesis_options import ConversionOptions, SynthesisOptions, UnaryOptions, request_of, setup_of
from cosyserve.transport import channel_options
from cosyserve.utterance import Header, Mode, Summary, read_header, read_summary
from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import synthesis_pb2_grpc
from cosyserve.voice_calls import VoiceCalls

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A minute of 48 kHz linear PCM, the longest SynthesizeUnary, is under 6 MB."""


class Client(VoiceCalls):
    """One connection to a cosyserve endpoint. Server errors are raised as the classes of cosyserve.errors; a trace of the caller goes on
    in the server.

    What can be chosen beside the text (`**how`): `cosyserve.synthesis_options`. Values no message can carry raise InvalidRequest.
    """

    def __init__(self, target: str) -> None:
        """target: host:port; nothing is sent before the first call."""
        self.target = target
        self._channel = grpc.aio.insecure_channel(target, options=channel_options(_MAX_MESSAGE_BYTES))
        super().__init__(target, self._channel)
        self._stub = cast("synthesis_pb2_grpc.SynthesisServiceAsyncStub", synthesis_pb2_grpc.SynthesisServiceStub(self._channel))

    async def close(self) -> None:
        """Hang up; calls in progress are cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def synthesize(self, text: str, *, timeout: float | None = None, resumptions: int = 0, **how: Unpack[SynthesisOptions]) -> Speech:
        """Speak a text.

        timeout: seconds for the whole stream. resumptions: how often in a row a lost connection is taken up again where the audio
        stopped, waiting for the server up to 30 s each time; 0 raises at once.
        """
        return self._hear(request_of(pb.SynthesizeRequest, how, text=text), how, timeout, resumptions)

    def convert_voice(
        self, audio: bytes, *, timeout: float | None = None, resumptions: int = 0, **how: Unpack[ConversionOptions]
    ) -> Speech:
        """Speak what is said in `audio`, the bytes of a sound file, with another voice. timeout, resumptions: as in `synthesize`."""
        return self._hear(request_of(pb.ConvertVoiceRequest, how, audio=audio), how, timeout, resumptions)

    def streaming_synthesize(
        self,
        fragments: AsyncIterable[str] | None = None,
        *,
        mode: Mode = "sentences",
        buffer_delay_milliseconds: int = 0,
        idle_timeout_milliseconds: int = 0,
        timeout: float | None = None,
        **how: Unpack[SynthesisOptions],
    ) -> StreamingSpeech:
        """Speak a text while it is written: by `fragments`, or by the methods of what is returned. mode and milliseconds: as in
        StreamingSynthesizeSetup of synthesis.proto. timeout: seconds for the whole stream."""
        setup = setup_of(how, mode, buffer_delay_milliseconds, idle_timeout_milliseconds)
        return StreamingSpeech(self._channel, self.target, setup, _width(how), timeout, fragments)

    async def synthesize_unary(
        self,
        text: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the call's deadline, sent to the server
        **how: Unpack[UnaryOptions],
    ) -> tuple[bytes, Header, Summary]:
        """Speak a text as a whole under full attention; at most 60 s of audio."""
        response = await self._ask(self._stub.SynthesizeUnary, request_of(pb.SynthesizeUnaryRequest, how, text=text), timeout)
        return response.audio, read_header(response.header), read_summary(response.summary)

    def _hear(
        self, request: pb.SynthesizeRequest | pb.ConvertVoiceRequest, how: Mapping[str, Any], seconds: float | None, resumptions: int
    ) -> Speech:
        return Speech(self._channel, self.target, request, _width(how), seconds, resumptions)


def _width(how: Mapping[str, Any]) -> int:
    """Bytes of a sample."""
    encoding: Encoding = how.get("encoding", Encoding.LINEAR16)
    return encoding.bytes_per_sample
