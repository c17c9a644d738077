"""Generates a sentence once more, with another seed, if its speech fails a guard and none of it has
been played; raises the fault otherwise.

The stages detect the faults. The seed follows from (seed, sentence, attempt). The caller learns
which sentences were retried and sends the list back when it resumes, so that the same audio comes
again.
"""

import asyncio
import hashlib
import logging
from dataclasses import dataclass, field

from cosyserve import spec, telemetry
from cosyserve.errors import CosyserveError, SpeechFault
from services.orchestrator.decode_ahead import PlaybackClock, SoundAhead
from services.orchestrator.speech.conditioning import Conditioning
from services.orchestrator.speech.silence import SilenceTrimmer
from services.orchestrator.speech.token_stream import TokenStream
from services.orchestrator.speech.utterance import OpenSentence, Sentence, Utterance
from services.orchestrator.speech.word_alignment import WordTime, word_times
from services.orchestrator.stages.failover import Engines
from services.orchestrator.stages.llm import LlmStage
from services.orchestrator.stages.token2wav import Decoded, Listener, Token2WavStage

log = logging.getLogger(__name__)
_RETRIES = telemetry.meter.create_counter(
    "cosyserve.speech.retries",
    "{sentence}",
    "Sentences generated again with another seed, by the guard that the first attempt failed",
)


@dataclass
class RetryState:
    """Progress of one request across its sentences and their attempts."""

    samples: int = 0
    """Samples at 24 kHz spoken so far, also those that are trimmed or that a resumed caller already
    has.
    """
    retried: list[int] = field(default_factory=list)
    """Numbers of the sentences that use the second seed, in order."""
    words: list[WordTime] = field(default_factory=list)
    """Words whose times are known."""
    playback: PlaybackClock = field(default_factory=PlaybackClock)
    """Estimates how much sound the listener still has to play."""


def attempt_seed(seed: int, sentence: int, attempt: int) -> int:
    """The seed of an attempt: the request's own for the first one, 64 bits of a hash for later
    ones.
    """
    if attempt == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"cosyserve {seed} {sentence} {attempt}".encode()).digest()[:8], "little")


def first_attempt(utterance: Utterance, sentence: Sentence | OpenSentence) -> TokenStream:
    """An empty stream for the tokens of `sentence`; of its second attempt if the caller has already
    heard the beginning of that.
    """
    return _stream(utterance, sentence, 1 if sentence.index in utterance.retried_sentences else 0)


async def write(
    utterance: Utterance, conditioning: Conditioning, stream: TokenStream, llm: LlmStage, engines: Engines
) -> int:
    """Generate the tokens of `stream`; returns the number of takeovers. A speech fault is stored in
    the stream and raised to its reader.
    """
    try:
        return await llm.generate(utterance, conditioning, stream, engines)
    except SpeechFault as fault:
        stream.fail(fault)
        return 0


async def speak(
    utterance: Utterance,
    conditioning: Conditioning,
    stream: TokenStream,
    stages: tuple[LlmStage, Token2WavStage],
    sound: SilenceTrimmer,
    engines: Engines,
    state: RetryState,
    ahead: SoundAhead | None = None,
) -> tuple[TokenStream, Decoded]:
    """Play a sentence. Returns the stream that was spoken, which is not `stream` if the sentence
    was retried.

    ahead: the first attempt, if its decoding was started early. Raises the SpeechFault if it cannot
    be retried: the request does not allow it, part of the sentence was heard, or it is the second
    attempt.
    """
    llm, token2wav = stages
    began = state.samples
    sound.start(stream.sentence.index)
    timed = False

    def place_words(spoken: TokenStream) -> None:
        nonlocal timed
        if not timed and spoken.timing is not None:
            state.words += word_times(spoken, began, utterance.speed_of(spoken.sentence))
            timed = True

    retries = utterance.retry and not stream.attempt and sound.begin >= _heard_before(utterance)
    # A sentence that is spoken while it is being written cannot wait for its end.
    judges_first = retries and llm.guards and isinstance(stream.sentence, Sentence)

    async def counted(audio: bytes) -> None:
        if judges_first and speaking is stream:
            await stream.judged()
        state.samples += len(audio) // 2
        place_words(speaking)
        await sound.play(audio)

    speaking = stream
    listener = Listener(state.playback.utterance, lambda: state.playback.left)

    async def decode(tokens: TokenStream) -> Decoded:
        return await token2wav.decode(utterance, conditioning, tokens, counted, engines, listener=listener)

    async def first() -> Decoded:
        if ahead is not None:
            try:
                return await ahead.play(counted)
            except SpeechFault:
                raise
            except CosyserveError as error:
                if state.samples > began:
                    raise
                log.info("sentence %d is decoded again at its turn: %s", stream.sentence.index, error.message)
        return await decode(stream)

    try:
        decoded = await first()
        place_words(stream)
        return stream, decoded
    except SpeechFault as fault:
        if not retries or sound.heard:
            raise
        _RETRIES.add(1, {"guard": fault.guard})
    # Withheld silence has not been heard: the second attempt replaces it.
    state.samples, timed = began, False
    state.words = [word for word in state.words if word.sentence != stream.sentence.index]
    sound.start(stream.sentence.index)
    second = speaking = _stream(utterance, stream.sentence, stream.attempt + 1)
    state.retried.append(stream.sentence.index)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(write(utterance, conditioning, second, llm, engines))
        decoded = await decode(second)
        decoded.takeovers += await writing
    place_words(second)
    return second, decoded


def _stream(utterance: Utterance, sentence: Sentence | OpenSentence, attempt: int) -> TokenStream:
    return TokenStream(sentence, attempt_seed(utterance.seed, sentence.index, attempt), attempt)


def _heard_before(utterance: Utterance) -> int:
    """Samples at 24 kHz that the caller received before it resumed."""
    return -(-utterance.start_sample * spec.SAMPLE_RATE // utterance.sample_rate)
