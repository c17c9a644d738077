"""Where audio becomes audible, for listeners whose player skips leading silence."""

import numpy as np
from cosyserve.audio.audibility import LEAD_MILLISECONDS, ONSET_DBFS
from numpy.typing import NDArray

from cosyserve.spec import SAMPLE_RATE

AUDIBLE = 10 ** (ONSET_DBFS / 20)
"""Amplitude above which a sample counts as audible."""
LEAD_SAMPLES = SAMPLE_RATE * LEAD_MILLISECONDS // 1000
"""Samples of silence that are played before the first audible sample."""


def audible_from(samples: NDArray[np.float32]) -> int | None:
    """Index of the first of `samples` (float32 [n] at 24 kHz) that is played if leading silence is
    skipped; None if no sample is audible.
    """
    loud = np.flatnonzero(np.abs(samples) > AUDIBLE)
    return max(int(loud[0]) - LEAD_SAMPLES, 0) if loud.size else None
