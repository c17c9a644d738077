"""A sentence has words: one that cannot be heard, as a whole or for seconds on end, is a fault of
the networks.
"""

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import Silence
from cosyserve.spec import SAMPLE_RATE

FRAME_SAMPLES = SAMPLE_RATE // 50
QUIET = 10 ** (-55 / 20)
"""Root mean square of a frame of 20 ms below which it is silence: pauses of the bundled voice lie
below it, its faintest sounds above.
"""
LONGEST_PAUSE_SECONDS = 3.0
"""At speed 1.0. What separates words within one sentence is a fraction of it."""


class SilenceGuard:
    """Listens to one sentence, float32 at 24 kHz, in pieces of any size; what it finds does not
    depend on the cutting.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._longest = round(LONGEST_PAUSE_SECONDS / speed * SAMPLE_RATE / FRAME_SAMPLES)
        self._rest = np.zeros(0, np.float32)
        self._frames = self._quiet = 0
        self.heard = False
        """Whether anything has been louder than silence so far."""

    def hear(self, samples: NDArray[np.float32], *, last: bool) -> None:
        """The next samples. Raises Silence when a pause is too long, and at the end when there was
        nothing but silence.
        """
        samples = np.concatenate([self._rest, samples])
        whole = len(samples) // FRAME_SAMPLES * FRAME_SAMPLES
        self._rest = samples[whole:]
        frames = samples[:whole].reshape(-1, FRAME_SAMPLES).astype(np.float64)
        for loud in (np.sqrt((frames**2).mean(axis=1)) >= QUIET).tolist():
            self._frame(loud)
        if last and not self.heard:
            raise Silence(
                f"the sentence is silent: nothing in its {self._frames * FRAME_SAMPLES / SAMPLE_RATE:.2f} s can be "
                "heard"
            )

    def _frame(self, loud: bool) -> None:
        self._frames += 1
        self._quiet = 0 if loud else self._quiet + 1
        self.heard = self.heard or loud
        if self._quiet > self._longest:
            began = (self._frames - self._quiet) * FRAME_SAMPLES / SAMPLE_RATE
            raise Silence(
                f"nothing can be heard in the sentence for {self._quiet * FRAME_SAMPLES / SAMPLE_RATE:.2f} s from "
                f"{began:.2f} s on"
            )
