"""Faulty sentences: silent, running on, stopping early."""

from typing import Literal, get_args

import numpy as np

from tools.quality.recordings.recording import Samples
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
