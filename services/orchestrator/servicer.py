"""The public door: protobuf to `Utterance`, sound to protobuf."""

import asyncio
from typing import Any, cast

import grpc

from cosyserve import errors
from cosyserve.audio import Encoding, OutputStream
from cosyserve.v1 import audio_pb2, profile_pb2, synthesis_pb2, synthesis_pb2_grpc
from services.orchestrator import validation
from services.orchestrator.admission import Admission
from services.orchestrator.deadline import within
from services.orchestrator.engines import Engines
from services.orchestrator.pipeline import Account, Milliseconds, Stages, speak
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.utterance import Utterance
from services.orchestrator.voice_servicer import VoiceMethods
from services.orchestrator.voice_stage import VoiceStage

_ENCODINGS = {
    audio_pb2.AUDIO_ENCODING_LINEAR16: Encoding.LINEAR16,
    audio_pb2.AUDIO_ENCODING_MULAW: Encoding.MULAW,
    audio_pb2.AUDIO_ENCODING_ALAW: Encoding.ALAW,
}
Context = grpc.aio.ServicerContext[Any, Any]
_UNARY_BYTES = 4_000_000
"""gRPC's default limit on a received message is 4 MiB."""


class SynthesisServicer(VoiceMethods, synthesis_pb2_grpc.SynthesisServiceServicer):
    def __init__(self, stages: Stages, voices: VoiceStage, settings: OrchestratorSettings) -> None:
        super().__init__(voices, settings.max_voice_makings)
        self._stages = stages
        self._settings = settings
        self.admission = Admission(settings.max_streams)

    async def Synthesize(  # type: ignore[override]  # writes from a coroutine, so that an error of any stage ends the call
        self, request: synthesis_pb2.SynthesizeRequest, context: Context
    ) -> None:
        utterance = validation.streaming(request, self._settings.max_characters)
        with self.admission.admit():
            async with within(self._settings.max_request_seconds, context.time_remaining()):
                await _Reply(utterance, context, self._settings.reader_seconds).stream(self._stages)

    async def SynthesizeUnary(
        self, request: synthesis_pb2.SynthesizeUnaryRequest, context: Context
    ) -> synthesis_pb2.SynthesizeUnaryResponse:
        utterance = validation.unary(request, self._settings.max_characters)
        out, account, pieces = _output(utterance), Account(), list[bytes]()

        async def play(audio: bytes) -> None:
            pieces.append(out.feed(audio))

        with self.admission.admit():
            async with within(self._settings.max_request_seconds, context.time_remaining()):
                await speak(utterance, self._stages, play, account, self._longest_unary(utterance))
        pieces.append(out.finish())
        account.sounded()
        return synthesis_pb2.SynthesizeUnaryResponse(
            audio=b"".join(pieces), header=_header(utterance, account), summary=_summary(account, out.position / utterance.sample_rate)
        )

    def _longest_unary(self, utterance: Utterance) -> float:
        """Seconds that fit into one message as most gRPC clients receive it, or the setting when that is less."""
        bytes_per_second = (
            utterance.sample_rate * _ENCODINGS[cast("audio_pb2.AudioEncoding.ValueType", utterance.encoding)].bytes_per_sample
        )
        return min(self._settings.max_unary_seconds, _UNARY_BYTES / bytes_per_second)


class _Reply:
    """The response stream of one `Synthesize` call: numbers its messages, places them in time."""

    def __init__(self, utterance: Utterance, context: Context, reader_seconds: float) -> None:
        self._utterance = utterance
        self._reader_seconds = reader_seconds
        self._context = context
        self._account = Account(engines=Engines(wanted=utterance.engine))
        self._out = _output(utterance)
        self._sent = 0
        self._place = utterance.start_sample

    async def stream(self, stages: Stages) -> None:
        await speak(self._utterance, stages, self._play, self._account)
        rest = self._out.finish()
        if self._out.position < self._utterance.start_sample:
            raise errors.OutOfRange(
                f"start_sample is {self._utterance.start_sample}, the utterance has {self._out.position} samples at the requested rate"
            )
        await self._write(rest, _summary(self._account, self._out.position / self._utterance.sample_rate))

    async def _play(self, audio: bytes) -> None:
        self._account.engines.require()
        ready = self._out.feed(audio)
        if ready:
            await self._write(ready, None)

    async def _write(self, audio: bytes, summary: synthesis_pb2.SynthesisSummary | None) -> None:
        if audio:
            self._account.sounded()
        header = _header(self._utterance, self._account) if self._sent == 0 else None
        message = synthesis_pb2.SynthesizeResponse(
            audio=audio, chunk_index=self._sent, start_sample=self._place, header=header, summary=summary
        )
        try:
            async with asyncio.timeout(self._reader_seconds):
                await self._context.write(message)
        except TimeoutError as error:
            raise errors.CallerStalled(f"the caller took no audio for {self._reader_seconds:g} s") from error
        self._sent += 1
        self._place += len(audio) // self._out.encoding.bytes_per_sample


def _output(utterance: Utterance) -> OutputStream:
    return OutputStream(
        _ENCODINGS[cast("audio_pb2.AudioEncoding.ValueType", utterance.encoding)], utterance.sample_rate, utterance.start_sample
    )


def _header(utterance: Utterance, account: Account) -> synthesis_pb2.SynthesisHeader:
    return synthesis_pb2.SynthesisHeader(
        seed=utterance.seed,
        voice=account.voice,
        audio_format=audio_pb2.AudioFormat(
            encoding=cast("audio_pb2.AudioEncoding.ValueType", utterance.encoding), sample_rate_hertz=utterance.sample_rate
        ),
        profile=cast("profile_pb2.Profile.ValueType", utterance.profile),
        engine=account.engines.name,
    )


def _summary(account: Account, audio_seconds: float) -> synthesis_pb2.SynthesisSummary:
    return synthesis_pb2.SynthesisSummary(
        audio_seconds=audio_seconds,
        first_sound_milliseconds=account.first_sound_milliseconds,
        real_time_factor=account.milliseconds / 1000 / audio_seconds if audio_seconds else 0.0,
        first_sound=_milliseconds(account.first_sound),
        total=_milliseconds(account.total),
        sentences=account.sentences,
        speech_tokens=account.speech_tokens,
        resumptions=account.takeovers,
    )


def _milliseconds(spent: Milliseconds) -> synthesis_pb2.StageMilliseconds:
    return synthesis_pb2.StageMilliseconds(**vars(spent))
