"""Silence at both ends of an utterance is removed on its way from the pipeline to the encoder:
ONSET_TRIMMED of synthesis.proto.

Both cuts are decided on the samples of one sentence alone, at 24 kHz and before resampling: at the
start on those of the first sentence, at the end on those of the last one. So the result depends
neither on the cutting of messages nor on when the next sentence becomes known, and a request that
is resumed is cut at the same samples.

What is withheld for it: of the first sentence everything in front of its first sample above the
level, and of a sentence of which it is not known yet whether another one follows, what is quiet for
longer than the tail that is kept. Each is bounded by the longest sentence.
"""

from dataclasses import dataclass, field

import numpy as np

from cosyserve import spec
from cosyserve.audio.levels import LEAD_MILLISECONDS, ONSET_DBFS, samples_above
from services.orchestrator.sound.silence import Play, play_silence

_LEAD_SAMPLES = spec.SAMPLE_RATE * LEAD_MILLISECONDS // 1000
_TAIL_SAMPLES = spec.SAMPLE_RATE * 100 // 1000
"""Kept behind the last sample above the level: sounds die away below it."""


@dataclass
class Trimming:
    """What was removed from an utterance so far; counts of samples at 24 kHz."""

    removed_start: int = 0
    removed_end: int = 0
    start: int = 0
    """Place of the first sentence's sound: the length of the pause that the text asks for in front
    of it.
    """
    settled: bool = False
    """Whether it is known how much is removed at the start."""
    sentences: int = 0
    """How many sentences of the text are known; complete or still being written."""

    def sent_seconds(self, seconds: float) -> float:
        """Where a place of the untrimmed utterance lies in what is sent. A place that was removed:
        where the sound begins.
        """
        start = self.start / spec.SAMPLE_RATE
        return min(seconds, start) if seconds <= start else max(start, seconds - self.removed_start / spec.SAMPLE_RATE)


@dataclass
class _Sentence:
    """The sentence that is being played."""

    index: int
    begin: int
    """Samples of the utterance that are sent in front of it."""
    withheld: bytearray = field(default_factory=bytearray)
    """Its samples that came last and are not sent yet."""
    audible: bool = False
    """Whether it has had a sample above the level."""
    quiet: int = 0
    """Its samples behind the last one above the level, the withheld ones included."""


class SilenceTrimmer:
    """Takes the sound of an utterance, sentence by sentence, and hands to `play` what is sent of it
    (s16le, 24 kHz).
    """

    def __init__(self, play: Play, trimming: Trimming, *, trimmed: bool) -> None:
        """trimming: is filled in meanwhile. trimmed: False sends every sample."""
        trimming.settled = not trimmed
        self._play = play
        self._trimming = trimming
        self._trimmed = trimmed
        self._sentence = _Sentence(-1, 0)
        self._opening_pause = 0
        """Milliseconds of it that are still to be sent."""
        self._sent = 0

    @property
    def begin(self) -> int:
        """Place of the present sentence's first sample in what is sent."""
        return self._sentence.begin

    @property
    def heard(self) -> bool:
        """Whether anything of the present sentence has been sent."""
        return self._sent > self._sentence.begin

    async def pause(self, milliseconds: int, *, closing: bool = False) -> None:
        """Silence in front of the next sentence or, closing, behind the last one. It is sent in
        full.

        In front of the first sentence it leaves with the first sound, since what the first message
        says of the engines is not known before.
        """
        if self._sentence.index < 0:
            self._opening_pause = milliseconds
            return
        await (self.end() if closing else self._release())
        await play_silence(milliseconds, self._send)

    def start(self, index: int) -> None:
        """The sound of this sentence comes next. What was withheld of a failed attempt to speak it
        is dropped.
        """
        opening = spec.SAMPLE_RATE * self._opening_pause // 1000
        if index == 0:
            self._trimming.start = opening
        self._sentence = _Sentence(index, self._sent + opening)

    async def play(self, pcm: bytes) -> None:
        """The next samples of the present sentence, whole ones, in any cutting."""
        sentence = self._sentence
        if not self._trimmed:
            await self._send(pcm)
            return
        above = samples_above(np.frombuffer(pcm, "<i2"), ONSET_DBFS)
        sentence.withheld += pcm
        if above.size:
            sentence.quiet = len(pcm) // 2 - 1 - int(above[-1])
            if not sentence.audible:
                self._first_audible(sentence, len(sentence.withheld) // 2 - len(pcm) // 2 + int(above[0]))
        elif sentence.audible:
            sentence.quiet += len(pcm) // 2
        await self._send(self._ready(sentence))

    async def end(self) -> None:
        """The utterance is over: what is withheld behind the tail of its last sentence is
        removed.
        """
        if self._sentence.audible:
            self._trimming.removed_end += len(self._sentence.withheld) // 2
            self._sentence.withheld.clear()
        await self._release()

    def _first_audible(self, sentence: _Sentence, place: int) -> None:
        """The first sample above the level is sample `place` of what is withheld."""
        sentence.audible = True
        if sentence.index == 0:
            self._trimming.removed_start = max(0, place - _LEAD_SAMPLES)
            self._trimming.settled = True
            del sentence.withheld[: 2 * self._trimming.removed_start]

    def _ready(self, sentence: _Sentence) -> bytes:
        """Take from what is withheld all that will be sent whatever comes."""
        keep = 0
        if not sentence.audible:
            keep = len(sentence.withheld) // 2 if sentence.index == 0 else 0
        elif self._trimming.sentences <= sentence.index + 1:
            keep = max(0, sentence.quiet - _TAIL_SAMPLES)
        until = len(sentence.withheld) - 2 * keep
        ready = bytes(sentence.withheld[:until])
        del sentence.withheld[:until]
        return ready

    async def _release(self) -> None:
        """Another sentence follows, or this one has nothing above the level: all of it is sent."""
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
