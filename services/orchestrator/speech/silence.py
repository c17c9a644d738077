"""Silence in what is sent: the default pauses between sentences, and the removal of the silence at
both ends of an utterance between the pipeline and the encoder (ONSET_TRIMMED of synthesis.proto).
Samples of silence are counted like samples of speech, so that a resumed stream continues at the
right sample.

Each cut depends on the samples of one sentence alone, at 24 kHz and before resampling: the start on
those of the first sentence, the end on those of the last one. So the result depends neither on
message boundaries nor on when the next sentence becomes known, and a resumed request is cut at the
same samples.

Withheld until the cut is known: everything in front of the first sample above the level in the
first sentence, and, while it is unknown whether another sentence follows, quiet samples beyond the
tail that is kept. Each is bounded by the longest sentence.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from cosyserve import spec
from cosyserve.audio.audibility import LEAD_MILLISECONDS, ONSET_DBFS, TAIL_MILLISECONDS, samples_above
from services.orchestrator.speech.utterance import Sentence, Utterance

_PIECE_MILLISECONDS = 1_000
Play = Callable[[bytes], Awaitable[None]]
"""Receives the next samples of an utterance: mono, s16le, 24 kHz."""
SENTENCE_PAUSE_MILLISECONDS = 200
"""Added after a sentence of LONG_TOKENS or more. The bundled voices themselves end a sentence with
200 to 280 ms of silence; the sum is a typical pause of a human reader.
"""
SHORT_TOKENS, LONG_TOKENS = 20, 50
"""Length of a sentence in speech tokens, 40 ms each. Up to SHORT_TOKENS no pause is added, from
LONG_TOKENS on SENTENCE_PAUSE_MILLISECONDS; between the two the pause grows linearly.
"""
_LEAD_SAMPLES = spec.SAMPLE_RATE * LEAD_MILLISECONDS // 1000
_TAIL_SAMPLES = spec.SAMPLE_RATE * TAIL_MILLISECONDS // 1000


def default_pause(tokens_before: int) -> int:
    """Milliseconds of pause to add after a sentence of `tokens_before` speech tokens when the
    request sets no pause.

    Speakers pause only briefly next to a short sentence. The teacher model of the bundled voices
    pauses for a median of 70 ms (af_heart) and 50 ms (am_michael) if one of two sentences is a
    single word. That is far less than the silence with which the voices end a sentence, so
    nothing is added after a short one.
    """
    share = (tokens_before - SHORT_TOKENS) / (LONG_TOKENS - SHORT_TOKENS)
    return round(SENTENCE_PAUSE_MILLISECONDS * min(max(share, 0.0), 1.0))


def pause_before(sentence: Sentence, utterance: Utterance, tokens_before: int) -> int:
    """Milliseconds of silence before a sentence. A pause that the text asks for replaces the pause
    between sentences. tokens_before: speech tokens of the sentence before it.
    """
    if sentence.pause_before_milliseconds or sentence.index == 0 or sentence.silent or sentence.continues:
        return sentence.pause_before_milliseconds
    asked = utterance.sentence_pause_milliseconds
    return default_pause(tokens_before) if asked is None else asked


async def play_silence(milliseconds: int, play: Play) -> None:
    """Pass `milliseconds` of silence (mono, s16le, 24 kHz) to `play`, at most one second per call.
    For 0 or less, `play` is not called.
    """
    for begin in range(0, milliseconds, _PIECE_MILLISECONDS):
        piece = min(_PIECE_MILLISECONDS, milliseconds - begin)
        await play(bytes(2 * (spec.SAMPLE_RATE * piece // 1000)))


@dataclass
class Trimming:
    """What was removed from an utterance so far, in samples at 24 kHz."""

    removed_start: int = 0
    removed_end: int = 0
    start: int = 0
    """Position of the sound of the first sentence: the length of the pause that the text asks for
    before it.
    """
    settled: bool = False
    """Whether it is known how much is removed at the start."""
    sentences: int = 0
    """How many sentences of the text are known, complete or still being written."""

    def may_end_with(self, sentence: int) -> bool:
        """Whether it may be the last sentence, as far as the text is known."""
        return self.sentences <= sentence + 1

    def sent_seconds(self, seconds: float) -> float:
        """Time in the audio that is sent, for a time of the untrimmed utterance. A time that was
        removed becomes the time at which the sound begins.
        """
        start = self.start / spec.SAMPLE_RATE
        return min(seconds, start) if seconds <= start else max(start, seconds - self.removed_start / spec.SAMPLE_RATE)


@dataclass
class _Sentence:
    """The sentence that is being played."""

    index: int
    begin: int
    """Samples of the utterance that are sent before it."""
    withheld: bytearray = field(default_factory=bytearray)
    """Its latest samples, which are not sent yet."""
    audible: bool = False
    """Whether it has had a sample above the level."""
    quiet: int = 0
    """Its samples after the last one above the level, including the withheld ones."""


class SilenceTrimmer:
    """Takes the sound of an utterance, sentence by sentence, and hands the samples that are sent to
    `play` (s16le, 24 kHz).
    """

    def __init__(self, play: Play, trimming: Trimming, *, trimmed: bool) -> None:
        """trimming: filled in on the way. trimmed: False sends every sample."""
        trimming.settled = not trimmed
        self._play = play
        self._trimming = trimming
        self._trimmed = trimmed
        self._sentence = _Sentence(-1, 0)
        self._opening_pause = 0
        """Milliseconds of the opening pause that are still to be sent."""
        self._sent = 0

    def may_end_with(self, sentence: int) -> bool:
        """See `Trimming`."""
        return self._trimming.may_end_with(sentence)

    @property
    def begin(self) -> int:
        """Position of the first sample of the current sentence in what is sent."""
        return self._sentence.begin

    @property
    def heard(self) -> bool:
        """Whether any sample of the current sentence has been sent."""
        return self._sent > self._sentence.begin

    async def pause(self, milliseconds: int, *, closing: bool = False) -> None:
        """Play silence before the next sentence or, with `closing`, after the last one. It is sent
        in full.

        Before the first sentence it is sent together with the first sound, because the first
        message names the engines, which are not known earlier.
        """
        if self._sentence.index < 0:
            self._opening_pause = milliseconds
            return
        await (self.end() if closing else self._release())
        await play_silence(milliseconds, self._send)

    def start(self, index: int) -> None:
        """The sound of this sentence comes next. Samples withheld from a failed attempt are
        dropped.
        """
        opening = spec.SAMPLE_RATE * self._opening_pause // 1000
        if index == 0:
            self._trimming.start = opening
        self._sentence = _Sentence(index, self._sent + opening)

    async def play(self, pcm: bytes) -> None:
        """The next samples of the current sentence, whole ones, in pieces of any length."""
        sentence = self._sentence
        if not self._trimmed:
            await self._send(pcm)
            return
        above = samples_above(np.frombuffer(pcm, "<i2"), ONSET_DBFS)
        sentence.withheld += pcm
        if above.size:
            sentence.quiet = len(pcm) // 2 - 1 - int(above[-1])
            if not sentence.audible and sentence.index == 0:
                place = len(sentence.withheld) // 2 - len(pcm) // 2 + int(above[0])
                self._trimming.removed_start = max(0, place - _LEAD_SAMPLES)
                self._trimming.settled = True
                del sentence.withheld[: 2 * self._trimming.removed_start]
            sentence.audible = True
        elif sentence.audible:
            sentence.quiet += len(pcm) // 2
        await self._send(self._ready(sentence))

    async def end(self) -> None:
        """The utterance is over: samples withheld after the tail of its last sentence are
        removed.
        """
        if self._sentence.audible:
            self._trimming.removed_end += len(self._sentence.withheld) // 2
            self._sentence.withheld.clear()
        await self._release()

    def _ready(self, sentence: _Sentence) -> bytes:
        """Take all withheld samples that will be sent in any case."""
        keep = 0
        if not sentence.audible:
            keep = len(sentence.withheld) // 2 if sentence.index == 0 else 0
        elif self._trimming.may_end_with(sentence.index):
            keep = max(0, sentence.quiet - _TAIL_SAMPLES)
        until = len(sentence.withheld) - 2 * keep
        ready = bytes(sentence.withheld[:until])
        del sentence.withheld[:until]
        return ready

    async def _release(self) -> None:
        """Send all withheld samples: another sentence follows, or this one has no sample above the
        level.
        """
        rest = bytes(self._sentence.withheld)
        self._sentence.withheld.clear()
        self._trimming.settled = True
        await self._send(rest)

    async def _send(self, pcm: bytes) -> None:
        if not pcm:
            return
        opening, self._opening_pause = self._opening_pause, 0
        await play_silence(opening, self._count)
        await self._count(pcm)

    async def _count(self, pcm: bytes) -> None:
        self._sent += len(pcm) // 2
        await self._play(pcm)
