"""The beginning of a long recording, cut where nobody speaks."""

import numpy as np

from tools.quality.recordings.recording import Samples

REACH_SECONDS = 1.0
_PAUSE_SECONDS = 0.1


def opening(samples: Samples, sample_rate: int, seconds: float) -> Samples:
    """About the first `seconds` of mono `samples`: cut in the middle of the quietest 0.1 s that
    lies within a second of there.

    All of them when they are not longer than a second more than that.
    """
    if len(samples) <= (seconds + REACH_SECONDS) * sample_rate:
        return samples
    first = max(0, round((seconds - REACH_SECONDS) * sample_rate))
    around = samples[first : round((seconds + REACH_SECONDS) * sample_rate)]
    length = round(_PAUSE_SECONDS * sample_rate)
    power = np.convolve(np.square(around, dtype=np.float64), np.ones(length), "valid")
    return samples[: first + int(power.argmin()) + length // 2]
