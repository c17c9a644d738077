"""Faulty sentences: silent, running on, stopping early, cut off; and how long a sentence should
take.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from tools.quality.recordings.recording import Recording, Samples
from tools.quality.words.alignment import Alignment

Fault = Literal["silent", "runs on", "stops early"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
_SILENCE = 10 ** (-50 / 20)
"""Root mean square, of full scale 1, below which a recording counts as silent."""
_LONGEST_RATIO = 1.6
_SHORTEST_RATIO = 0.6
_WORDS_AT_END = 2
"""One word more or less at the end is a word error like any other; from two on the sentence did not
end where the text does.
"""


_TAIL_SECONDS = 0.100
_LAST_SECONDS = 0.020
_HIGHEST_LAST_DECIBELS = -20.0


def loudness(samples: Samples) -> float:
    """Root mean square of samples [n], full scale 1; 0 for none."""
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))) if len(samples) else 0.0


def fault_of(samples: Samples, alignment: Alignment, duration_ratio: float) -> Fault | None:
    """The first that applies.

    silent: below -50 dB of full scale. runs on: 1.6 times the expected duration, or at least two
    words after the last one that belongs there. stops early: 0.6 times the expected duration, or at
    least the last two words missing.
    """
    if loudness(samples) < _SILENCE:
        return "silent"
    if duration_ratio > _LONGEST_RATIO or alignment.added_at_end >= _WORDS_AT_END:
        return "runs on"
    if duration_ratio < _SHORTEST_RATIO or alignment.missing_at_end >= _WORDS_AT_END:
        return "stops early"
    return None


@dataclass(frozen=True)
class Ending:
    """Levels in dB relative to the whole sentence. tail: of its last 100 ms. last: of its last 20
    ms.
    """

    tail_decibels: float
    last_decibels: float

    @property
    def cut(self) -> bool:
        """Whether the last 20 ms are still louder than 20 dB below the sentence: speech has not
        come to rest.
        """
        return self.last_decibels > _HIGHEST_LAST_DECIBELS


def ending(recording: Recording) -> Ending:
    """Of one sentence; silence throughout counts as at rest."""
    whole = loudness(recording.samples)

    def level(seconds: float) -> float:
        part = loudness(recording.samples[-round(seconds * recording.sample_rate) :])
        return 20 * float(np.log10(max(part, 1e-6) / max(whole, 1e-3)))

    return Ending(level(_TAIL_SECONDS), level(_LAST_SECONDS))


def duration_ratios(recordings: Sequence[Recording], reference: Sequence[Recording] | None) -> list[float]:
    """Seconds of each recording over its expected seconds.

    Expected is the reference's recording of the sentence where there is one; where not, a straight
    line through the list itself, seconds against letters, fitted by medians (Theil-Sen), so that
    single runaways do not move it.
    """
    spoken = {recording.sentence.number: recording.seconds for recording in reference or ()}
    letters = [sum(map(str.isalpha, recording.sentence.text)) for recording in recordings]
    fitted = _line(letters, [recording.seconds for recording in recordings])
    expected = [
        spoken.get(recording.sentence.number, guess) for recording, guess in zip(recordings, fitted, strict=True)
    ]
    return [recording.seconds / seconds for recording, seconds in zip(recordings, expected, strict=True)]


def _line(letters: Sequence[int], seconds: Sequence[float]) -> list[float]:
    x, y = np.asarray(letters, np.float64), np.asarray(seconds, np.float64)
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] != x[second]
    slope = float(np.median((y[second] - y[first])[apart] / (x[second] - x[first])[apart])) if apart.any() else 0.0
    middle = float(np.median(y - slope * x))
    shortest = max(float(y.min()), 1e-3)
    return [max(middle + slope * count, shortest) for count in x]
