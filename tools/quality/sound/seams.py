"""What an utterance loses by leaving in pieces: steps and jumps of energy at the borders of the
stream's messages, against those at other places; and the stream against the whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tools.quality.recordings.recording import Recording, Samples

_REACH_SECONDS = 0.010
_SILENCE = 1e-4
"""Added to what is divided by: -80 dB of full scale, so that what is inaudible is no seam."""
_PLACES_PER_BORDER = 20
_WINDOW = 1024
_HOP = 256
_DYNAMIC_RANGE_DECIBELS = 60.0


@dataclass(frozen=True)
class Seams:
    """Each ratio is "at the borders" over "elsewhere": 1 where cuts leave no trace. nan without
    borders.

    step: |x[n] - x[n-1]| in units of its own mean over the 10 ms before and the 10 ms after. jump:
    |difference| of the levels of the 10 ms after and the 10 ms before, in dB.
    """

    borders: int
    step_mean: float
    step_99: float
    jump_mean: float
    jump_99: float

    @property
    def largest(self) -> float:
        return max(self.step_mean, self.step_99, self.jump_mean, self.jump_99)


def seams(recordings: Sequence[Recording], seed: int = 0) -> Seams:
    """Over all borders of all recordings; `seed` draws the other places, uniformly, 20 ms or more
    from the borders and the ends.
    """
    generator = np.random.default_rng(seed)
    at_borders, elsewhere = [], []
    for recording in recordings:
        reach = round(_REACH_SECONDS * recording.sample_rate)
        borders = np.array(
            [border for border in recording.borders if reach <= border <= len(recording.samples) - reach], np.int64
        )
        others = generator.integers(
            reach, max(len(recording.samples) - reach, reach + 1), _PLACES_PER_BORDER * len(borders)
        )
        far = np.abs(others[:, None] - borders[None, :]).min(axis=1, initial=np.iinfo(np.int64).max) > 2 * reach
        at_borders.append(_steps_and_jumps(recording.samples, borders, reach))
        elsewhere.append(_steps_and_jumps(recording.samples, others[far], reach))
    here, there = np.concatenate([np.empty((0, 2)), *at_borders]), np.concatenate([np.empty((0, 2)), *elsewhere])
    if not len(here) or not len(there):
        return Seams(len(here), np.nan, np.nan, np.nan, np.nan)
    mean, high = here.mean(0) / there.mean(0), np.percentile(here, 99, axis=0) / np.percentile(there, 99, axis=0)
    return Seams(len(here), float(mean[0]), float(high[0]), float(mean[1]), float(high[1]))


def _steps_and_jumps(samples: Samples, places: NDArray[np.int64], reach: int) -> NDArray[np.float64]:
    """[places, 2]: step and jump at each place, which has `reach` samples on either side."""
    if not len(places):
        return np.empty((0, 2))
    around = samples[places[:, None] + np.arange(-reach, reach)].astype(np.float64)
    steps = np.abs(np.diff(around, axis=1))
    usual = np.delete(steps, reach - 1, axis=1).mean(axis=1) + _SILENCE
    before, after = (np.sqrt(np.mean(half**2, axis=1)) + _SILENCE for half in (around[:, :reach], around[:, reach:]))
    return np.stack([steps[:, reach - 1] / usual, np.abs(20 * np.log10(after / before))], axis=1)


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
