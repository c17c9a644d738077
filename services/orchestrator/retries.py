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
from functools import partial

from cosyserve import spec
from cosyserve.errors import CosyserveError, SpeechFault
from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter
from services.orchestrator.aligning.late_words import LateWords
from services.orchestrator.aligning.untimed import Reason
from services.orchestrator.aligning.workers import AlignerWorkers
from services.orchestrator.decode_ahead import PlaybackClock, SoundAhead
from services.orchestrator.speech.conditioning import Conditioning
from services.orchestrator.speech.heard import Heard
from services.orchestrator.speech.silence import Play, SilenceTrimmer
from services.orchestrator.speech.token_stream import TokenStream
from services.orchestrator.speech.utterance import Sentence, Utterance
from services.orchestrator.speech.word_alignment import WordTime, word_times
from services.orchestrator.stages.engines import Engines
from services.orchestrator.stages.llm import LlmStage
from services.orchestrator.stages.token2wav import Decoded, Listener, Token2WavStage

log = logging.getLogger(__name__)
_GUARDS = counter(names.GUARDS)


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
    """Words whose times are known with the tokens of their sentence."""
    late_words: LateWords = field(default_factory=LateWords)
    """Those whose times are found in the sound."""
    heard: Heard = field(default_factory=Heard)
    """What the listener hears and when."""
    playback: PlaybackClock = field(default_factory=PlaybackClock)
    """Estimates how much sound the listener still has to play."""


def attempt_seed(seed: int, sentence: int, attempt: int) -> int:
    """The seed of an attempt: the request's own for the first one, 64 bits of a hash for later
    ones.
    """
    if attempt == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"cosyserve {seed} {sentence} {attempt}".encode()).digest()[:8], "little")


def stream_of(utterance: Utterance, sentence: Sentence, attempt: int) -> TokenStream:
    """An empty stream for the tokens of an attempt, counted from 0."""
    return TokenStream(sentence, attempt_seed(utterance.seed, sentence.index, attempt), attempt)


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


class Speaker:
    """Plays the sentences of one request in order, again with another seed where allowed."""

    def __init__(
        self,
        utterance: Utterance,
        conditioning: Conditioning,
        stages: tuple[LlmStage, Token2WavStage, AlignerWorkers],
        sound: SilenceTrimmer,
        engines: Engines,
        state: RetryState,
    ) -> None:
        self._utterance = utterance
        self._conditioning = conditioning
        self._llm, self._token2wav, self._aligners = stages
        self._sound = sound
        self._engines = engines
        self._state = state
        self._listener = Listener(state.playback.utterance, lambda: state.playback.left)
        self._timed: TokenStream | None = None
        """The attempt whose words have their times."""

    async def speak(self, stream: TokenStream, ahead: SoundAhead | None = None) -> tuple[TokenStream, Decoded]:
        """Play a sentence. Returns the stream that was spoken, which is not `stream` if the
        sentence was retried.

        ahead: the first attempt, if its decoding was started early. Raises the SpeechFault if it
        cannot be retried: the request does not allow it, part of the sentence was heard, or it is
        the second attempt.
        """
        utterance, sentence, state = self._utterance, stream.sentence, self._state
        began = state.samples
        self._sound.start(sentence.index)
        # Samples at 24 kHz that the caller received before it resumed.
        received = -(-utterance.start_sample * spec.SAMPLE_RATE // utterance.sample_rate)
        retries = utterance.retry and not stream.attempt and self._sound.begin >= received
        # A sentence that is spoken while it is being written cannot wait for its end.
        judged = retries and self._llm.guards and sentence.whole
        try:
            return stream, await self._attempt(stream, ahead, judged=judged)
        except SpeechFault as fault:
            if not retries or self._sound.heard or not self._llm.policy.budget.may_spend(fault.guard):
                raise
            _GUARDS.add(1, guard=fault.guard, outcome="retried")
        # Withheld silence has not been heard: the second attempt replaces it.
        state.samples = began
        state.words = [word for word in state.words if word.sentence != sentence.index]
        self._sound.start(sentence.index)
        second = stream_of(utterance, sentence, stream.attempt + 1)
        state.retried.append(sentence.index)
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write(utterance, self._conditioning, second, self._llm, self._engines))
            decoded = await self._attempt(second)
            decoded.takeovers += await writing
        return second, decoded

    async def _attempt(self, stream: TokenStream, ahead: SoundAhead | None = None, *, judged: bool = False) -> Decoded:
        """judged: no sound is played before the word times of the sentence are checked."""
        state, began = self._state, self._state.samples
        sound = bytearray()
        # Decided once, because aligners may start to work in the middle of a sentence.
        aligners = self._aligners if self._aligners.count else AlignerWorkers()
        collecting = bool(aligners.count)

        async def play(audio: bytes) -> None:
            state.heard.decoded()
            if judged:
                await stream.judged()
            if collecting and not stream.has_text_starts:
                sound.extend(audio)
            state.samples += len(audio) // 2
            self._place_words(stream, began)
            await self._sound.play(audio)

        decoded = await self._decode(stream, play, ahead)
        self._place_words(stream, began)
        if not stream.has_text_starts:
            state.late_words.add(aligners, stream.sentence, bytes(sound), began)
        elif stream.sentence.words and not (stream.timing and stream.timing.text_starts):
            state.late_words.untimed.add(Reason.NOT_ALIGNED, stream.sentence.index)
        return decoded

    async def _decode(self, stream: TokenStream, play: Play, ahead: SoundAhead | None) -> Decoded:
        began = self._state.samples
        if ahead is not None:
            try:
                return await ahead.play(play)
            except SpeechFault:
                raise
            except CosyserveError as error:
                if self._state.samples > began:
                    raise
                log.info("sentence %d is decoded again at its turn: %s", stream.sentence.index, error.message)
        return await self._token2wav.decode(
            self._utterance, self._conditioning, stream, play, self._engines, listener=self._listener,
            may_be_last=partial(self._sound.may_end_with, stream.sentence.index),
        )  # fmt: skip

    def _place_words(self, stream: TokenStream, first_sample: int) -> None:
        """Add the times of its words, once they are known."""
        if self._timed is not stream and stream.timing is not None:
            self._state.words += word_times(stream, first_sample, self._utterance.speed_of(stream.sentence))
            self._timed = stream
