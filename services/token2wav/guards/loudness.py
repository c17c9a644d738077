"""Checks of the loudness of generated audio: where it becomes audible, and whether it is silent or
saturated, which are faults of the networks.
"""

import numpy as np
from numpy.typing import NDArray

from cosyserve.audio.audibility import LEAD_MILLISECONDS, ONSET_DBFS, TAIL_MILLISECONDS
from cosyserve.errors import Absurd, Silence
from cosyserve.spec import SAMPLE_RATE

AUDIBLE = 10 ** (ONSET_DBFS / 20)
"""Amplitude above which a sample counts as audible."""
LEAD_SAMPLES = SAMPLE_RATE * LEAD_MILLISECONDS // 1000
"""Samples of silence that are played before the first audible sample."""
TAIL_SAMPLES = SAMPLE_RATE * TAIL_MILLISECONDS // 1000
"""Samples of silence that are played after the last audible sample."""


def audible_from(samples: NDArray[np.float32]) -> int | None:
    """Index of the first of `samples` (float32 [n] at 24 kHz) that is played if leading silence is
    skipped; None if no sample is audible.
    """
    loud = np.flatnonzero(np.abs(samples) > AUDIBLE)
    return max(int(loud[0]) - LEAD_SAMPLES, 0) if loud.size else None


def quiet_at_end(samples: NDArray[np.float32]) -> int:
    """How many of `samples` (float32 [n] at 24 kHz) follow the last audible one: all, if no sample
    is audible.
    """
    loud = np.flatnonzero(np.abs(samples) > AUDIBLE)
    return samples.size - 1 - int(loud[-1]) if loud.size else samples.size


FRAME_SAMPLES = SAMPLE_RATE // 50
QUIET = 10 ** (-55 / 20)
"""Root mean square below which a frame of 20 ms counts as silence: pauses of the bundled voice are
below it, its quietest sounds above.
"""
LONGEST_PAUSE_SECONDS = 3.0
"""Maximum pause at speed 1.0; pauses between words are a fraction of it."""


class SilenceGuard:
    """Detects silent audio: a sentence has words, so one that is inaudible as a whole or for
    seconds is a fault. Checks one sentence, float32 at 24 kHz, in chunks of any size; the result
    does not depend on the chunk sizes.
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


WINDOW_SAMPLES = SAMPLE_RATE // 5
LIMIT = 0.98
"""The vocoder clamps to 0.99, so a sample of this magnitude was probably larger."""
MAX_SHARE = 0.25
"""Maximum share of a window's samples that may reach LIMIT."""


class SaturationGuard:
    """Detects saturated audio: speech has short peaks; audio that stays at the vocoder's limit is
    numerical failure, which listeners hear as loud noise. Chunks as in `SilenceGuard`.
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
