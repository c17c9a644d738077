"""Detects silent audio. A sentence has words, so one that is inaudible as a whole or for seconds is
a fault of the networks.
"""

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import Silence
from cosyserve.spec import SAMPLE_RATE

FRAME_SAMPLES = SAMPLE_RATE // 50
QUIET = 10 ** (-55 / 20)
"""Root mean square below which a frame of 20 ms counts as silence: pauses of the bundled voice are
below it, its quietest sounds above.
"""
LONGEST_PAUSE_SECONDS = 3.0
"""Maximum pause at speed 1.0; pauses between words are a fraction of it."""


class SilenceGuard:
    """Checks one sentence, float32 at 24 kHz, in chunks of any size; the result does not depend on
    the chunk sizes.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._longest = round(LONGEST_PAUSE_SECONDS / speed * SAMPLE_RATE / FRAME_SAMPLES)
        self._rest = np.zeros(0, np.float32)
        self._frames = self._quiet = 0
        self.heard = False
        """Whether any frame has been louder than silence so far."""

    def hear(self, samples: NDArray[np.float32], *, last: bool) -> None:
        """Check the next samples. Raises Silence when a pause is too long, and at the end if the
        whole sentence was silent.
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
