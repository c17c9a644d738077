"""The client of the public door: speech as an async iterator of chunks, checked to be whole.

async with Client("127.0.0.1:50051") as client, client.synthesize("Hello.") as speech:
    async for chunk in speech:
        play(chunk.audio)
    print(speech.header.seed, speech.summary.real_time_factor)
"""

import contextlib
from collections.abc import AsyncIterable, Iterator, Mapping
from types import TracebackType
from typing import Self, cast

import grpc

from cosyserve.audio import Encoding
from cosyserve.errors import InvalidRequest
from cosyserve.spec import SAMPLE_RATE
from cosyserve.speech import Speech
from cosyserve.streaming_speech import StreamingSpeech
from cosyserve.utterance import Growth, Header, Mode, Profile, Summary, audio_format, read_header, read_summary
from cosyserve.v1 import profile_pb2, synthesis_pb2, synthesis_pb2_grpc
from cosyserve.voice_calls import VoiceCalls

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A minute of 48 kHz linear PCM, the longest SynthesizeUnary, is under 6 MB."""


class Client(VoiceCalls):
    """One connection to a cosyserve endpoint. Server errors are raised as the classes of cosyserve.errors; a trace of the caller goes on
    in the server."""

    def __init__(self, target: str) -> None:
        """target: host:port; nothing is sent before the first call."""
        self.target = target
        options = [
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1_000),
        ]
        self._channel = grpc.aio.insecure_channel(target, options=options)
        super().__init__(target, self._channel)
        self._stub = cast("synthesis_pb2_grpc.SynthesisServiceAsyncStub", synthesis_pb2_grpc.SynthesisServiceStub(self._channel))

    async def close(self) -> None:
        """Hang up; calls in progress are cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def synthesize(
        self,
        text: str,
        *,
        voice: str = "",
        seed: int | None = None,
        speed: float = 1.0,
        sample_rate: int = SAMPLE_RATE,
        encoding: Encoding = Encoding.LINEAR16,
        profile: Profile = "continuous",
        language_code: str = "",
        allow_control_tokens: bool = False,
        pronunciations: Mapping[str, str] | None = None,
        first_hop_tokens: int = 0,
        growth: Growth | None = None,
        max_hop_tokens: int = 0,
        start_sample: int = 0,
        sentence_pause_milliseconds: int | None = None,
        retry: bool = False,
        timeout: float | None = None,
        resumptions: int = 0,
    ) -> Speech:
        """Speak a text; ranges as in SynthesizeRequest of synthesis.proto, which the server checks.

        timeout: seconds for the whole stream. resumptions: how often in a row a lost connection is taken up again where the audio
        stopped, waiting for the server up to 30 s each time; 0 raises at once. Raises InvalidRequest for values no message can carry.
        """
        with _unrepresentable():
            request = synthesis_pb2.SynthesizeRequest(
                text=text,
                voice=voice,
                audio_format=audio_format(encoding, sample_rate),
                speed=speed,
                seed=seed,
                language_code=language_code,
                allow_control_tokens=allow_control_tokens,
                pronunciations=pronunciations,
                profile=profile_pb2.Profile.Value(f"PROFILE_{profile.upper()}"),
                hops=profile_pb2.HopSchedule(
                    first_hop_tokens=first_hop_tokens,
                    growth=profile_pb2.HopSchedule.Growth.Value(f"GROWTH_{(growth or 'unspecified').upper()}"),
                    max_hop_tokens=max_hop_tokens,
                ),
                start_sample=start_sample,
                sentence_pause_milliseconds=sentence_pause_milliseconds,
                retry=retry,
            )
        return Speech(self._channel, self.target, request, encoding.bytes_per_sample, timeout, resumptions)

    def streaming_synthesize(
        self,
        fragments: AsyncIterable[str] | None = None,
        *,
        mode: Mode = "sentences",
        buffer_delay_milliseconds: int = 0,
        idle_timeout_milliseconds: int = 0,
        voice: str = "",
        seed: int | None = None,
        speed: float = 1.0,
        sample_rate: int = SAMPLE_RATE,
        encoding: Encoding = Encoding.LINEAR16,
        profile: Profile = "continuous",
        language_code: str = "",
        allow_control_tokens: bool = False,
        pronunciations: Mapping[str, str] | None = None,
        first_hop_tokens: int = 0,
        growth: Growth | None = None,
        max_hop_tokens: int = 0,
        start_sample: int = 0,
        sentence_pause_milliseconds: int | None = None,
        retry: bool = False,
        timeout: float | None = None,
    ) -> StreamingSpeech:
        """Speak a text while it is written: by `fragments`, or by the methods of what is returned. Ranges as in StreamingSynthesizeSetup of
        synthesis.proto, which the server checks.

        timeout: seconds for the whole stream. Raises InvalidRequest for values no message can carry.
        """
        request = self.synthesize(
            "",
            voice=voice,
            seed=seed,
            speed=speed,
            sample_rate=sample_rate,
            encoding=encoding,
            profile=profile,
            language_code=language_code,
            allow_control_tokens=allow_control_tokens,
            pronunciations=pronunciations,
            first_hop_tokens=first_hop_tokens,
            growth=growth,
            max_hop_tokens=max_hop_tokens,
            start_sample=start_sample,
            sentence_pause_milliseconds=sentence_pause_milliseconds,
            retry=retry,
        ).request
        with _unrepresentable():
            setup = synthesis_pb2.StreamingSynthesizeSetup(
                request=request,
                mode=synthesis_pb2.StreamingSynthesizeSetup.Mode.Value(f"MODE_{mode.upper()}"),
                buffer_delay_milliseconds=buffer_delay_milliseconds,
                idle_timeout_milliseconds=idle_timeout_milliseconds,
            )
        return StreamingSpeech(self._channel, self.target, setup, encoding.bytes_per_sample, timeout, fragments)

    async def synthesize_unary(
        self,
        text: str,
        *,
        voice: str = "",
        seed: int | None = None,
        speed: float = 1.0,
        sample_rate: int = SAMPLE_RATE,
        encoding: Encoding = Encoding.LINEAR16,
        language_code: str = "",
        allow_control_tokens: bool = False,
        pronunciations: Mapping[str, str] | None = None,
        sentence_pause_milliseconds: int | None = None,
        retry: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - the call's deadline, sent to the server
    ) -> tuple[bytes, Header, Summary]:
        """Speak a text as a whole under full attention; at most 60 s of audio."""
        with _unrepresentable():
            request = synthesis_pb2.SynthesizeUnaryRequest(
                text=text,
                voice=voice,
                audio_format=audio_format(encoding, sample_rate),
                speed=speed,
                seed=seed,
                language_code=language_code,
                allow_control_tokens=allow_control_tokens,
                pronunciations=pronunciations,
                sentence_pause_milliseconds=sentence_pause_milliseconds,
                retry=retry,
            )
        response = await self._ask(self._stub.SynthesizeUnary, request, timeout)
        return response.audio, read_header(response.header), read_summary(response.summary)


@contextlib.contextmanager
def _unrepresentable() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"the request cannot be written as a message: {error}") from error
