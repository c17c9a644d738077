"""Where the sound of a recording begins and ends, and where a long one may be cut."""

import numpy as np

from tools.quality.recordings.recording import Samples

LOUD_DECIBELS = -45.0
"""Of full scale, root mean square of a frame: speech is above it, what comes before the first word
below.
"""
_FRAME_SECONDS = 0.010
_SILENT_FRAMES = 4
"""Fewer quiet frames before the first loud one do not count as silence: they say nothing about when
the sound began.
"""
REACH_SECONDS = 1.0
"""How far from the wanted length a recording may be cut."""
_PAUSE_SECONDS = 0.1


def sounding(samples: Samples, sample_rate: int) -> tuple[float | None, float | None]:
    """Seconds from the beginning of mono `samples` to the first loud frame of 10 ms, and to the end
    of the last one; None where the recording has no 40 ms of silence there, or nothing loud at all.
    """
    length = round(_FRAME_SECONDS * sample_rate)
    frames = samples[: len(samples) // length * length].reshape(-1, length).astype(np.float64)
    loud = np.flatnonzero(np.sqrt(np.square(frames).mean(axis=1)) >= 10 ** (LOUD_DECIBELS / 20))
    if not len(loud):
        return None, None
    first, behind = int(loud[0]), int(loud[-1]) + 1
    begin = first * length / sample_rate if first >= _SILENT_FRAMES else None
    return begin, behind * length / sample_rate if len(frames) - behind >= _SILENT_FRAMES else None


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
