"""Detects saturated audio. Speech has short peaks; audio that stays at the vocoder's limit is
numerical failure, which listeners hear as loud noise.
"""

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import Absurd
from cosyserve.spec import SAMPLE_RATE

WINDOW_SAMPLES = SAMPLE_RATE // 5
LIMIT = 0.98
"""The vocoder clamps to 0.99, so a sample of this magnitude was probably larger."""
MAX_SHARE = 0.25
"""Maximum share of a window's samples that may reach LIMIT."""


class SaturationGuard:
    """Checks one sentence, float32 at 24 kHz, in chunks of any size; the result does not depend on
    the chunk sizes.
    """

    def __init__(self) -> None:
        self._samples = self._clamped = 0

    def hear(self, samples: NDArray[np.float32]) -> None:
        """Check the next samples. Raises Absurd at the end of a window in which too many samples
        reach the limit.
        """
        clamped = np.abs(samples) >= LIMIT
        begin = 0
        while begin < len(samples):
            end = min(len(samples), begin + WINDOW_SAMPLES - self._samples % WINDOW_SAMPLES)
            self._clamped += int(clamped[begin:end].sum())
            self._samples += end - begin
            begin = end
            if self._samples % WINDOW_SAMPLES == 0:
                self._check_window()

    def _check_window(self) -> None:
        share, self._clamped = self._clamped / WINDOW_SAMPLES, 0
        if share > MAX_SHARE:
            began = (self._samples - WINDOW_SAMPLES) / SAMPLE_RATE
            raise Absurd(
                f"{share:.0%} of the {WINDOW_SAMPLES / SAMPLE_RATE:g} s from {began:.2f} s on lie at the limit of what "
                "is sound"
            )
