"""The response stream of the public service: encodes sound as protobuf messages, numbers them and
gives each its place in time.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc

from cosyserve import errors, spec
from cosyserve.audio.audibility import FirstAudible
from cosyserve.tasks import retrieve_error
from cosyserve.v1 import audio_pb2, profile_pb2, synthesis_pb2
from services.orchestrator.pipeline import Milliseconds, RequestMetrics
from services.orchestrator.request_log import FIGURES, Figures
from services.orchestrator.speech.output import Output, Piece
from services.orchestrator.speech.silence import Play
from services.orchestrator.speech.utterance import Utterance
from services.orchestrator.stages.engines import Engines

Context = grpc.aio.ServicerContext[Any, Any]
_LAST_MESSAGE_SECONDS = 0.5


class Reply:
    """Sends the responses of one call."""

    def __init__(
        self,
        utterance: Utterance,
        context: Context,
        reader_seconds: float,
        sending: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """reader_seconds: longest time in seconds that the caller may take to read one message.
        sending: entered while sound is on its way to the caller.
        """
        self._utterance = utterance
        self._reader_seconds = reader_seconds
        self._sending = sending
        self._context = context
        self._metrics = RequestMetrics(engines=Engines(wanted=utterance.engine))
        self._out = output_of(utterance)
        self._audible = FirstAudible(self._out.sound_encoding, self._out.sample_rate)
        self._sent = 0
        self._reported_retries = 0
        """How many of the retried sentences were reported to the caller."""
        self._reported_warnings = 0
        """How many of the warnings were reported to the caller."""
        self._place = utterance.start_sample
        self._writing: asyncio.Future[None] | None = None
        FIGURES.set(self._figures)

    @property
    def first_sound_seconds(self) -> float:
        """From admission to the first sound; 0 before it."""
        return self._metrics.first_sound_milliseconds / 1000

    def _figures(self) -> Figures:
        return figures_of(
            self._metrics, (self._place - self._utterance.start_sample) / self._utterance.sample_rate, self._audible
        )

    async def stream(self, speak: Callable[[Play, RequestMetrics], Awaitable[None]]) -> None:
        """Send what `speak` plays, to its end. Raises what it raises, OutOfRange if the caller
        resumes after the end of the audio, and CallerStalled.
        """
        try:
            await self._stream(speak)
        finally:
            self._metrics.retry_state.late_words.cancel()

    async def _stream(self, speak: Callable[[Play, RequestMetrics], Awaitable[None]]) -> None:
        await speak(self._play, self._metrics)
        rest = await self._out.finish()
        if self._out.position < self._utterance.start_sample:
            raise errors.OutOfRange(
                f"start_sample is {self._utterance.start_sample}, the utterance has {self._out.position} samples at "
                "the requested rate"
            )
        if self._metrics.retry_state.late_words.pending:
            # No sound waits for words.
            if rest.audio:
                await self._write(rest, None)
                rest = Piece(b"", b"")
            with self._sending():  # what the caller waits for is no idleness of his
                await self._metrics.retry_state.late_words.complete()
        await self._write(rest, self._out.position / self._utterance.sample_rate)

    async def break_off(self) -> None:
        """End the stream with the summary of what was sent, because the caller cancelled."""
        if self._writing is not None:
            await self._written(self._writing)
        await self._write(Piece(b"", b""), self._place / self._utterance.sample_rate, cancelled=True)

    async def _play(self, audio: bytes) -> None:
        self._metrics.engines.require()
        # Also for samples that a resumed request skips.
        with self._sending():
            if (ready := await self._out.feed(audio)).audio:
                await self._write(ready, None)

    async def _write(self, piece: Piece, last_seconds: float | None, *, cancelled: bool = False) -> None:
        """last_seconds: length of all audio, given with the last message only."""
        samples = self._out.samples_in(piece.sound)
        if piece.audio:
            self._metrics.sounded()
            self._metrics.retry_state.playback.sent(samples / self._out.sample_rate)
            self._metrics.heard.sent(samples / self._out.sample_rate)
            self._audible.arrived(self._metrics.milliseconds / 1000, piece.sound)
            count_audible(self._metrics, self._audible)
        message = synthesis_pb2.SynthesizeResponse(audio=piece.audio, chunk_index=self._sent, start_sample=self._place)
        if last_seconds is not None:
            browned_out = self._utterance.browned_out
            message.summary.CopyFrom(
                summary_of(self._metrics, last_seconds, self._audible, cancelled=cancelled, browned_out=browned_out)
            )
            if not cancelled:
                self._metrics.heard.finished(message.summary.real_time_factor)
        if self._sent == 0:
            message.header.CopyFrom(header_of(self._utterance, self._metrics))
        retried = self._metrics.retry_state.retried
        message.retried_sentences.extend(retried[self._reported_retries :])
        self._reported_retries = len(retried)
        warnings = self._metrics.warnings
        message.warnings.extend(warnings[self._reported_warnings :])
        self._reported_warnings = len(warnings)
        message.words.extend(take_words(self._metrics))
        self._sent += 1
        self._place += samples
        self._writing = asyncio.ensure_future(self._context.write(message))
        self._writing.add_done_callback(retrieve_error)
        with self._sending():
            await self._written(self._writing)

    async def _written(self, writing: "asyncio.Future[None]") -> None:
        """Wait for a write. The write is shielded: it continues when the pipeline is cancelled, and
        neither another message nor a status can be sent before it ends, so it gets a little time
        for that.
        """
        try:
            async with asyncio.timeout(self._reader_seconds):
                await asyncio.shield(writing)
            self._metrics.heard.taken()
        except asyncio.CancelledError:
            await asyncio.wait([writing], timeout=_LAST_MESSAGE_SECONDS)
            raise
        except TimeoutError as error:
            writing.cancel()
            raise errors.CallerStalled(f"the caller took no audio for {self._reader_seconds:g} s") from error


def count_audible(metrics: RequestMetrics, audible: FirstAudible) -> None:
    """Count the first audible sample once it is known. audible: on the clock of `metrics`."""
    if audible.seconds is not None:
        metrics.heard.audible_at(metrics.begun + audible.seconds)


def take_words(metrics: RequestMetrics) -> list[synthesis_pb2.WordTime]:
    """The words that became known since the last call, with their times in the audio that is sent;
    none before those times are known.
    """
    if not metrics.trimming.settled:
        return []
    state = metrics.retry_state
    words = state.words + state.late_words.words
    state.words, state.late_words.words = [], []
    return [
        synthesis_pb2.WordTime(
            text=word.text,
            start_seconds=metrics.trimming.sent_seconds(word.start),
            end_seconds=metrics.trimming.sent_seconds(word.end),
            sentence=word.sentence,
        )
        for word in words
    ]


def output_of(utterance: Utterance) -> Output:
    """Converts 24 kHz sound to the requested encoding and rate, starting at the requested
    sample.
    """
    return Output(utterance.encoding, utterance.sample_rate, utterance.start_sample)


def header_of(utterance: Utterance, metrics: RequestMetrics) -> synthesis_pb2.SynthesisHeader:
    """The values in use, defaults filled in; complete with the first audio."""
    return synthesis_pb2.SynthesisHeader(
        seed=utterance.seed,
        voice=metrics.voice,
        audio_format=audio_pb2.AudioFormat(
            encoding=audio_pb2.AudioEncoding.Value(f"AUDIO_ENCODING_{utterance.encoding.name}"),
            sample_rate_hertz=utterance.sample_rate,
        ),
        profile=cast("profile_pb2.Profile.ValueType", utterance.profile),
        engine=metrics.engines.name,
        onset=synthesis_pb2.ONSET_TRIMMED if utterance.trimmed else synthesis_pb2.ONSET_NATURAL,
        removed_start_milliseconds=_milliseconds_of(metrics.trimming.removed_start),
        euler_steps=metrics.engines.euler_steps,
    )


def summary_of(
    metrics: RequestMetrics,
    audio_seconds: float,
    audible: FirstAudible,
    *,
    cancelled: bool = False,
    browned_out: bool = False,
) -> synthesis_pb2.SynthesisSummary:
    """Timings and counts up to now. audible: on the clock of `metrics`."""
    waited = metrics.retry_state.late_words.waited_seconds
    return synthesis_pb2.SynthesisSummary(
        audio_seconds=audio_seconds,
        first_sound_milliseconds=metrics.first_sound_milliseconds,
        real_time_factor=(metrics.milliseconds / 1000 - waited) / audio_seconds if audio_seconds else 0.0,
        first_sound=_milliseconds(metrics.first_sound),
        total=_milliseconds(metrics.total),
        sentences=metrics.sentences,
        speech_tokens=metrics.speech_tokens,
        resumptions=metrics.takeovers,
        cancelled=cancelled,
        first_audible_milliseconds=1000 * (audible.seconds or 0.0),
        removed_start_milliseconds=_milliseconds_of(metrics.trimming.removed_start),
        removed_end_milliseconds=_milliseconds_of(metrics.trimming.removed_end),
        warnings=metrics.warnings,
        euler_steps=metrics.engines.euler_steps,
        browned_out=browned_out,
        missing_word_times=[
            synthesis_pb2.MissingWordTimes(
                reason=synthesis_pb2.MissingWordTimes.Reason.Value(f"REASON_{reason.name}"),
                sentences=count,
                first_sentence=first,
            )
            for reason, (first, count) in metrics.retry_state.late_words.untimed.by_reason.items()
        ],
    )


def figures_of(metrics: RequestMetrics, audio_seconds: float, audible: FirstAudible) -> Figures:
    """Figures for the log. audio_seconds: of what was sent. audible: on the clock of `metrics`."""
    return Figures(metrics.voice, audio_seconds, metrics.first_sound_milliseconds, 1000 * (audible.seconds or 0.0))


def _milliseconds_of(samples: int) -> float:
    return 1000 * samples / spec.SAMPLE_RATE


def _milliseconds(spent: Milliseconds) -> synthesis_pb2.StageMilliseconds:
    return synthesis_pb2.StageMilliseconds(**vars(spent))
