"""Speech has peaks, not plateaus: sound that lies at the vocoder's limit for long is numbers gone
astray, a loud noise to who hears it.
"""

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import Absurd
from cosyserve.spec import SAMPLE_RATE

WINDOW_SAMPLES = SAMPLE_RATE // 5
LIMIT = 0.98
"""The vocoder clamps to 0.99: samples from here on were more."""
MOST = 0.25
"""Share of a window that may lie there."""


class SaturationGuard:
    """Listens to one sentence, float32 at 24 kHz, in pieces of any size; what it finds does not
    depend on the cutting.
    """

    def __init__(self) -> None:
        self._samples = self._clamped = 0

    def hear(self, samples: NDArray[np.float32]) -> None:
        """The next samples. Raises Absurd when too many of a window are at the limit, at the
        window's end.
        """
        clamped = np.abs(samples) >= LIMIT
        begin = 0
        while begin < len(samples):
            end = min(len(samples), begin + WINDOW_SAMPLES - self._samples % WINDOW_SAMPLES)
            self._clamped += int(clamped[begin:end].sum())
            self._samples += end - begin
            begin = end
            if self._samples % WINDOW_SAMPLES == 0:
                self._judge()

    def _judge(self) -> None:
        share, self._clamped = self._clamped / WINDOW_SAMPLES, 0
        if share > MOST:
            began = (self._samples - WINDOW_SAMPLES) / SAMPLE_RATE
            raise Absurd(
                f"{share:.0%} of the {WINDOW_SAMPLES / SAMPLE_RATE:g} s from {began:.2f} s on lie at the limit of what "
                "is sound"
            )
