"""Streamed against whole: what an utterance loses by leaving in pieces."""

import numpy as np
from numpy.typing import NDArray

from tools.quality.recordings.recording import Samples

_WINDOW = 1024
_HOP = 256
_DYNAMIC_RANGE_DECIBELS = 60.0


def largest_difference(one: Samples, other: Samples) -> float:
    """Largest difference of two recordings that should be equal sample for sample; infinite when
    their lengths differ.
    """
    if len(one) != len(other):
        return float("inf")
    return float(np.abs(one - other).max(initial=0.0))


def spectral_distance(one: Samples, other: Samples) -> float | None:
    """Log-spectral distance in dB: root mean square over frequency, mean over frames, of two
    recordings of the same speech tokens.

    What is more than 60 dB below the loudest part of `one` counts as equally quiet. None when the
    lengths differ by more than a window.
    """
    length = min(len(one), len(other))
    if length < _WINDOW or abs(len(one) - len(other)) > _WINDOW:
        return None
    first, second = _levels(one[:length]), _levels(other[:length])
    floor = first.max() - _DYNAMIC_RANGE_DECIBELS
    difference = np.maximum(first, floor) - np.maximum(second, floor)
    return float(np.sqrt(np.mean(difference**2, axis=1)).mean())


def _levels(samples: Samples) -> NDArray[np.float64]:
    """[frames, bins] in dB."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::_HOP] * np.hanning(_WINDOW)
    return 20 * np.log10(np.abs(np.fft.rfft(frames, axis=1)) + 1e-9)
