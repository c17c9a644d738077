"""The pipeline of one request: text in, sound out, all stages working at the same time.

Three tasks run in one TaskGroup, so that a failure of one cancels all and reaches the caller:
`_read` turns text into sentences, `_write` turns sentences into speech tokens, one sentence ahead,
and `_speak` turns tokens into sound and plays it in order.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from cosyserve import spec
from cosyserve.errors import InvalidRequest, NotFound
from services.orchestrator import retries
from services.orchestrator.aligning.workers import AlignerWorkers
from services.orchestrator.decode_ahead import Decode, SentencesAhead, seconds_of
from services.orchestrator.retries import RetryState, Speaker
from services.orchestrator.speech.arriving_text import TextReplayBuffer
from services.orchestrator.speech.conditioning import Conditioning
from services.orchestrator.speech.heard import Heard
from services.orchestrator.speech.silence import Play, SilenceTrimmer, Trimming, pause_before
from services.orchestrator.speech.token_stream import TokenStream
from services.orchestrator.speech.utterance import Sentence, Utterance
from services.orchestrator.stages.engines import Engines
from services.orchestrator.stages.frontend import FrontendStage, TextWarnings
from services.orchestrator.stages.llm import LlmStage
from services.orchestrator.stages.token2wav import Decoded, Listener, Token2WavStage, is_served_profile
from services.orchestrator.stages.voice_contents import VoiceQuestion
from services.orchestrator.stages.voices import VoiceStage

_ANALYZED_AHEAD = 16


@dataclass
class Milliseconds:
    """Time by stage."""

    frontend: float = 0.0
    llm_prefill: float = 0.0
    llm_decode: float = 0.0
    flow: float = 0.0
    vocoder: float = 0.0


@dataclass
class RequestMetrics:
    """Timings, counts and results of one request; filled while it runs, complete when `speak`
    returns.
    """

    voice: str = ""
    """Id of the voice in use."""
    engines: Engines = field(default_factory=Engines)
    retry_state: RetryState = field(default_factory=RetryState)
    trimming: Trimming = field(default_factory=Trimming)
    warnings: TextWarnings = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    first_sound_milliseconds: float = 0.0
    first_sound: Milliseconds = field(default_factory=Milliseconds)
    total: Milliseconds = field(default_factory=Milliseconds)
    sentences: int = 0
    speech_tokens: int = 0
    takeovers: int = 0

    def sounded(self) -> None:
        """Called when audio is about to be sent; records the time of the first audio."""
        if not self.first_sound_milliseconds:
            self.first_sound_milliseconds = self.milliseconds

    @property
    def heard(self) -> Heard:
        """What the listener hears and when."""
        return self.retry_state.heard

    @property
    def milliseconds(self) -> float:
        """Since admission."""
        return (time.monotonic() - self.begun) * 1000


@dataclass(frozen=True)
class Stages:
    """The stages that the pipeline calls, and what aligns words with their sound."""

    frontend: FrontendStage
    voices: VoiceStage
    llm: LlmStage
    token2wav: Token2WavStage
    aligners: AlignerWorkers = field(default_factory=AlignerWorkers)


async def speak(
    utterance: Utterance,
    stages: Stages,
    play: Play,
    metrics: RequestMetrics,
    longest_seconds: float | None = None,
    text: TextReplayBuffer | None = None,
) -> None:
    """Speak `utterance`: hand its audio (s16le, 24 kHz) to `play` in order, without gap or repeat,
    and fill `metrics`. Words of the last sentences may still be awaited in
    `metrics.retry_state.late_words`.

    text: replaces `utterance.text` if the text arrives over time. longest_seconds: raise
    InvalidRequest as soon as the utterance is known to be longer.
    """
    analyzed: asyncio.Queue[Sentence | None] = asyncio.Queue(maxsize=_ANALYZED_AHEAD)
    # A queue of one: the sentence being written waits here until the one before it is spoken or
    # decoded early (`decode_ahead`). So at most three sentences are ahead of the listener.
    written: asyncio.Queue[TokenStream | None] = asyncio.Queue(maxsize=1)
    async with asyncio.TaskGroup() as group:
        asked = stages.voices.question(utterance.prompting) if text is None else None  # one call for both
        conditioning = group.create_task(stages.voices.conditioning(utterance.prompting, asked))
        group.create_task(_read(utterance, text, asked, stages, analyzed, metrics))
        group.create_task(_write(utterance, stages, conditioning, analyzed, written, metrics, longest_seconds))
        await _speak(
            utterance,
            stages,
            conditioning,
            written,
            SilenceTrimmer(play, metrics.trimming, trimmed=utterance.trimmed),
            metrics,
        )


async def _read(
    utterance: Utterance,
    text: TextReplayBuffer | None,
    asked: VoiceQuestion | None,
    stages: Stages,
    analyzed: "asyncio.Queue[Sentence | None]",
    metrics: RequestMetrics,
) -> None:
    frontend, warnings = stages.frontend, metrics.warnings

    async def take(sentence: Sentence) -> None:
        if not sentence.silent:
            metrics.heard.analyzed(sentence.index)
            metrics.trimming.sentences = sentence.index + 1
        await analyzed.put(sentence)

    # Not `+= await`: that adds to what was there before the wait, and the other tasks count too.
    try:
        takeovers = await (
            frontend.analyze(utterance, take, warnings, asked)
            if text is None
            else frontend.analyze_stream(utterance, text, take, warnings)
        )
    except NotFound:
        if asked is not None:
            stages.voices.contents.missing(asked)
        raise
    metrics.takeovers += takeovers
    await analyzed.put(None)


async def _write(
    utterance: Utterance,
    stages: Stages,
    conditioning: "asyncio.Task[Conditioning]",
    analyzed: "asyncio.Queue[Sentence | None]",
    written: "asyncio.Queue[TokenStream | None]",
    metrics: RequestMetrics,
    longest_seconds: float | None,
) -> None:
    known = await conditioning
    metrics.voice = known.voice
    seconds, before = 0.0, 0
    while (sentence := await analyzed.get()) is not None:
        if sentence.index == 0:
            metrics.first_sound.frontend = metrics.total.frontend = metrics.milliseconds
        seconds += pause_before(sentence, utterance, before) / 1000
        # The second attempt if the caller has already heard its beginning.
        stream = retries.stream_of(utterance, sentence, int(sentence.index in utterance.retried_sentences))
        stream.on_tokens = metrics.heard.written
        await written.put(stream)
        if not sentence.silent:
            # Not `+= await`, as in _read.
            takeovers = await retries.write(utterance, known, stream, stages.llm, metrics.engines)
            metrics.takeovers += takeovers
            # A sentence that failed a guard is generated again, and its length counts when it is
            # played.
            seconds += 0 if stream.fault else seconds_of(stream, utterance.speed_of(sentence))
            before = len(stream.spoken)
        if longest_seconds is not None:
            refuse_longer(seconds, longest_seconds)
    await written.put(None)


async def _speak(
    utterance: Utterance,
    stages: Stages,
    conditioning: "asyncio.Task[Conditioning]",
    written: "asyncio.Queue[TokenStream | None]",
    sound: SilenceTrimmer,
    metrics: RequestMetrics,
) -> None:
    before = 0
    async with contextlib.aclosing(SentencesAhead(written)) as sentences:
        upcoming, known = await sentences.first(), await conditioning
        parts = (stages.llm, stages.token2wav, stages.aligners)
        speaker = Speaker(utterance, known, parts, sound, metrics.engines, metrics.retry_state)
        while (stream := upcoming.stream) is not None:
            pause = pause_before(stream.sentence, utterance, before)
            metrics.retry_state.samples += spec.SAMPLE_RATE * pause // 1000
            await sound.pause(pause, closing=stream.sentence.silent)
            if stream.sentence.silent:
                upcoming = await sentences.first()
                continue
            # Tokens first: grpc.aio would send the model's call when the decoder's has been made.
            await stream.accepted()
            metrics.heard.begins(stream.sentence.index, whole=stream.sentence.whole)
            over = asyncio.Event()
            following = sentences.behind(stream, over, *_early(utterance, known, stream, stages, metrics))
            spoken, decoded = await speaker.speak(stream, upcoming.sound)
            over.set()
            settle(spoken, decoded, metrics)
            before = len(spoken.spoken)
            upcoming = await following
    await sound.end()


def _early(
    utterance: Utterance, conditioning: Conditioning, current: TokenStream, stages: Stages, metrics: RequestMetrics
) -> tuple[Callable[[], float], Callable[[TokenStream], Decode] | None]:
    """The arguments of `SentencesAhead.behind`: the time until `current` is played, and how to
    decode the sentence after it. Only the served profile is decoded early: the other profiles
    follow the order of the reference.
    """
    playback, began = metrics.retry_state.playback, metrics.retry_state.samples

    def until_played() -> float:
        sent = (metrics.retry_state.samples - began) / spec.SAMPLE_RATE
        return playback.left + max(seconds_of(current, utterance.speed_of(current.sentence)) - sent, 0.0)

    def decode(following: TokenStream) -> Decode:
        listener = Listener(playback.utterance, until_played)
        return lambda play: stages.token2wav.decode(
            utterance, conditioning, following, play, metrics.engines, listener=listener,
            may_be_last=partial(metrics.trimming.may_end_with, following.sentence.index),
        )  # fmt: skip

    return until_played, decode if is_served_profile(utterance) else None


def settle(stream: TokenStream, decoded: Decoded, metrics: RequestMetrics) -> None:
    """Add a spoken sentence to the metrics."""
    metrics.takeovers += decoded.takeovers
    metrics.total.flow += decoded.summary.flow_milliseconds
    metrics.total.vocoder += decoded.summary.vocoder_milliseconds
    if stream.sentence.index == 0:
        metrics.first_sound.flow = decoded.summary.first_flow_milliseconds
        metrics.first_sound.vocoder = decoded.summary.first_vocoder_milliseconds
    metrics.sentences += 1
    metrics.speech_tokens += len(stream.spoken)
    if stream.timing is None:
        return
    metrics.total.llm_prefill += stream.timing.prefill
    metrics.total.llm_decode += stream.timing.decode
    if stream.sentence.index == 0:
        metrics.first_sound.llm_prefill = stream.timing.prefill
        metrics.first_sound.llm_decode = stream.timing.first_hop


def refuse_longer(seconds: float, longest_seconds: float) -> None:
    """Raise InvalidRequest for an utterance that is too long for one unary response."""
    if seconds > longest_seconds:
        raise InvalidRequest(
            f"the utterance is over {seconds:.0f} s long, at most {longest_seconds:.0f} s are given at once; use "
            "Synthesize"
        )
