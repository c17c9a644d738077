"""The public door: protobuf to `Utterance`, sound to protobuf."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc

from cosyserve import errors
from cosyserve.audio import Encoding, OutputStream
from cosyserve.v1 import audio_pb2, profile_pb2, synthesis_pb2, synthesis_pb2_grpc
from services.orchestrator import validation
from services.orchestrator.admission import Admission
from services.orchestrator.arriving_text import ArrivingText
from services.orchestrator.caller_text import CancelledByCaller, Fragment, listen
from services.orchestrator.deadline import within
from services.orchestrator.engines import Engines
from services.orchestrator.pipeline import Account, Milliseconds, Stages, speak
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.utterance import Utterance
from services.orchestrator.voice_servicer import VoiceMethods
from services.orchestrator.voice_stage import VoiceStage
from services.orchestrator.word_times import WordTime

_ENCODINGS = {
    audio_pb2.AUDIO_ENCODING_LINEAR16: Encoding.LINEAR16,
    audio_pb2.AUDIO_ENCODING_MULAW: Encoding.MULAW,
    audio_pb2.AUDIO_ENCODING_ALAW: Encoding.ALAW,
}
Context = grpc.aio.ServicerContext[Any, Any]
_LONGEST_FRAGMENT = 20_000
_LAST_MESSAGE_SECONDS = 0.5
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

    async def StreamingSynthesize(  # type: ignore[override]  # as Synthesize
        self, requests: AsyncIterator[synthesis_pb2.StreamingSynthesizeRequest], context: Context
    ) -> None:
        settings = self._settings
        requests = aiter(requests)
        utterance, waiting = validation.arriving(await _setup_of(requests, settings.idle_seconds), settings.idle_seconds)
        with self.admission.admit():
            # Tells the caller that its setup is accepted: text written before may hide the status of a refusal.
            await context.send_initial_metadata(())
            text = ArrivingText(settings.max_waiting_characters)
            reply = _Reply(utterance, context, settings.reader_seconds)
            async with within(settings.max_stream_seconds, context.time_remaining()):
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(listen(_fragments(requests), text, waiting, settings.max_stream_characters))
                        await reply.stream(self._stages, text)
                except* CancelledByCaller:
                    await reply.break_off()

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
            audio=b"".join(pieces),
            header=_header(utterance, account),
            summary=_summary(account, out.position / utterance.sample_rate),
            words=[_word(word) for word in account.attempts.words],
        )

    def _longest_unary(self, utterance: Utterance) -> float:
        """Seconds that fit into one message as most gRPC clients receive it, or the setting when that is less."""
        bytes_per_second = (
            utterance.sample_rate * _ENCODINGS[cast("audio_pb2.AudioEncoding.ValueType", utterance.encoding)].bytes_per_sample
        )
        return min(self._settings.max_unary_seconds, _UNARY_BYTES / bytes_per_second)


async def _setup_of(
    requests: AsyncIterator[synthesis_pb2.StreamingSynthesizeRequest], idle_seconds: float
) -> synthesis_pb2.StreamingSynthesizeSetup:
    try:
        async with asyncio.timeout(idle_seconds):
            first = await anext(requests, None)
    except TimeoutError as error:
        raise errors.DeadlineExceeded(f"no setup came for {idle_seconds:g} s") from error
    if first is None or first.WhichOneof("part") != "setup":
        found = "no message came" if first is None else f"the first message carries {first.WhichOneof('part') or 'nothing'}"
        raise errors.InvalidRequest(f"{found}, expected the setup")
    return first.setup


async def _fragments(requests: AsyncIterator[synthesis_pb2.StreamingSynthesizeRequest]) -> AsyncIterator[Fragment]:
    async for request in requests:
        part = request.WhichOneof("part")
        if part not in ("text", "flush", "cancel"):
            raise errors.InvalidRequest(f"a message behind the first carries {part or 'nothing'}, expected text, flush or cancel")
        if len(request.text) > _LONGEST_FRAGMENT:
            raise errors.InvalidRequest(f"text has {len(request.text)} characters in one message, allowed are at most {_LONGEST_FRAGMENT}")
        yield Fragment(text=request.text, flush=part == "flush", cancel=part == "cancel")


class _Reply:
    """The response stream of one `Synthesize` or `StreamingSynthesize` call: numbers its messages, places them in time."""

    def __init__(self, utterance: Utterance, context: Context, reader_seconds: float) -> None:
        self._utterance = utterance
        self._reader_seconds = reader_seconds
        self._context = context
        self._account = Account(engines=Engines(wanted=utterance.engine))
        self._out = _output(utterance)
        self._sent = 0
        self._told = 0
        """How many of the sentences said anew the caller knows of."""
        self._place = utterance.start_sample
        self._writing: asyncio.Future[None] | None = None

    async def stream(self, stages: Stages, text: ArrivingText | None = None) -> None:
        await speak(self._utterance, stages, self._play, self._account, text=text)
        rest = self._out.finish()
        if self._out.position < self._utterance.start_sample:
            raise errors.OutOfRange(
                f"start_sample is {self._utterance.start_sample}, the utterance has {self._out.position} samples at the requested rate"
            )
        await self._write(rest, _summary(self._account, self._out.position / self._utterance.sample_rate))

    async def break_off(self) -> None:
        """The caller cancelled: end the stream with the summary of what was sent."""
        if self._writing is not None:
            await self._written(self._writing)
        summary = _summary(self._account, self._place / self._utterance.sample_rate)
        summary.cancelled = True
        await self._write(b"", summary)

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
        retried = self._account.attempts.retried
        message.retried_sentences.extend(retried[self._told :])
        self._told = len(retried)
        words, self._account.attempts.words = self._account.attempts.words, []
        message.words.extend(_word(word) for word in words)
        self._sent += 1
        self._place += len(audio) // self._out.encoding.bytes_per_sample
        self._writing = asyncio.ensure_future(self._context.write(message))
        self._writing.add_done_callback(_seen)
        await self._written(self._writing)

    async def _written(self, writing: "asyncio.Future[None]") -> None:
        """Shielded: a write that has begun goes on when the pipeline is cancelled, and neither another nor a status can be sent before it
        is over; for that it is given a little time."""
        try:
            async with asyncio.timeout(self._reader_seconds):
                await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing], timeout=_LAST_MESSAGE_SECONDS)
            raise
        except TimeoutError as error:
            writing.cancel()
            raise errors.CallerStalled(f"the caller took no audio for {self._reader_seconds:g} s") from error


def _seen(writing: "asyncio.Future[None]") -> None:
    """Whoever waited for the write may be gone; its failure is then told by the call itself."""
    if not writing.cancelled():
        writing.exception()


def _word(word: WordTime) -> synthesis_pb2.WordTime:
    return synthesis_pb2.WordTime(text=word.text, start_seconds=word.start, end_seconds=word.end, sentence=word.sentence)


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
