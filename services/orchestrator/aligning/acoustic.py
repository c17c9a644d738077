"""Forced alignment of English words with the sound in which they are spoken, by PocketSphinx: its
decoder follows the given words through its acoustic model and says which frames belong to each.

The acoustic model (English, 5,126 senones) and the dictionary come with the package (BSD licence),
so nothing is downloaded. Frames are of 25.6 ms, one every 10 ms.
Source: https://pocketsphinx.readthedocs.io.
"""

import math
from collections.abc import Sequence

import numpy as np
from pocketsphinx import Decoder

from cosyserve.spec import SAMPLE_RATE
from services.orchestrator.aligning.pronunciation import Spoken, pronounce
from services.orchestrator.aligning.untimed import Reason, Untimed

FRAME_SECONDS = 0.010
_WINDOW_SECONDS = 0.025625
MIDDLE_SECONDS = (_WINDOW_SECONDS - FRAME_SECONDS) / 2
"""A frame's window begins with the frame, so that the sound in its middle is this much later."""
_TRANSFORM = 1024
"""Points of the Fourier transform: the next power of two above the samples of a window. The filters
of the model end at 6.8 kHz, so that 24 kHz need not be resampled to its 16 kHz.
"""
LEAST_FIT = -3.0
"""Natural logarithm of the probability of a frame, relative to the likeliest sound of that frame,
on average over the frames of words. Right words have about -1, those of another sentence at most
-4 where the decoder finds any path (`tools.quality.aligned_words`).
"""
LEAST_SHARE = 0.8
"""Of the energy of the sound, in the frames of words: 0.99 for the words that were said. Sound that
belongs to no word is a sign that more was said, or no speech at all.
"""
_SCORE_SCALE = 1024
"""Scores are kept in units of 2^-10 of a logarithm."""
MOST_GUESSED = 1 / 3
"""A sentence with a larger share of words, and more than one, that are in no English dictionary is
taken for another language.
"""
_MOST_ADDED = 4096
"""Pronunciations added to the dictionary before it is read again: none can be taken out."""
Span = tuple[float, float]
"""Start and end of a word, in seconds from the first sample."""


class AcousticModel:
    """One decoder. Not thread-safe, and holds the GIL while it works: for a process of its own.
    Equal sound and words give equal times, whatever came before.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Read model and dictionary again, as after an error of the library."""
        # Its log would have the words. The words are given, so that they need no weight of a
        # language model, and a pause between two of them is likely.
        self._decoder = Decoder(
            lm=None,
            loglevel="FATAL",
            samprate=SAMPLE_RATE,
            nfft=_TRANSFORM,
            lw=1.0,
            wip=1.0,
            silprob=0.1,
            bestpath=False,
        )
        self._added: set[str] = set()

    def align(self, words: Sequence[str], pcm: bytes) -> list[Span]:
        """The span of each word. words: as `Sentence.words` of the frontend; pcm: mono s16le at
        24 kHz. Raises Untimed when the words are not English or do not fit the sound.
        """
        entries = [self._entry(spoken) for spoken in self._pronounced(words)]
        if len(pcm) < 2 * SAMPLE_RATE * _WINDOW_SECONDS:
            raise Untimed(Reason.NOT_ALIGNED)
        # Estimates of noise and level would otherwise carry over from the sentence before.
        self._decoder.reinit_feat()
        self._decoder.set_align_text(" ".join(entries))
        self._decoder.start_utt()
        try:
            self._decoder.process_raw(pcm, full_utt=True)
        finally:
            self._decoder.end_utt()
        found = [segment for segment in self._decoder.seg() or () if segment.word[0] not in "<[("]
        if len(found) != len(words):
            raise Untimed(Reason.NOT_ALIGNED)
        frames = sum(segment.end_frame - segment.start_frame + 1 for segment in found)
        if _SCORE_SCALE * sum(_logarithm(segment.ascore) for segment in found) < LEAST_FIT * frames:
            raise Untimed(Reason.NOT_ALIGNED)
        spans = [(_seconds(segment.start_frame), _seconds(segment.end_frame + 1)) for segment in found]
        if _share(spans, pcm) < LEAST_SHARE:
            raise Untimed(Reason.NOT_ALIGNED)
        return spans

    def _pronounced(self, words: Sequence[str]) -> list[Spoken]:
        spoken = [pronounce(word, self._decoder.lookup_word) for word in words]
        guessed = sum(each.guessed for each in spoken)
        if guessed > 1 and guessed > MOST_GUESSED * len(words):
            raise Untimed(Reason.LANGUAGE)
        return spoken

    def _entry(self, spoken: Spoken) -> str:
        if spoken.entry:
            return spoken.entry
        # Named by its phones, so that a word of one caller never changes how another's is said.
        name = "=" + "=".join(spoken.phones)
        if name not in self._added:
            self._decoder.add_word(name, " ".join(spoken.phones), False)
            self._added.add(name)
        return name

    def tidy(self) -> None:
        """Between two sentences: read the dictionary again when too much was added to it."""
        if len(self._added) > _MOST_ADDED:
            self.reset()


def _seconds(frame: int) -> float:
    return round(frame * FRAME_SECONDS + MIDDLE_SECONDS, 3)


def _share(spans: Sequence[Span], pcm: bytes) -> float:
    """Of the energy of the sound, what lies in the spans; 0 for silence."""
    energy = np.concatenate(([0.0], np.cumsum(np.frombuffer(pcm, "<i2").astype(np.float64) ** 2)))
    borders = np.minimum(np.rint(np.asarray(spans) * SAMPLE_RATE).astype(int), len(energy) - 1)
    inside = energy[borders[:, 1]] - energy[borders[:, 0]]
    return float(inside.sum() / energy[-1]) if energy[-1] else 0.0


def _logarithm(score: float) -> float:
    return math.log(score) if score > 0 else -math.inf
