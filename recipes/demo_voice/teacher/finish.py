"""From the teacher's samples to a recording: silence trimmed, loudness made equal, spoilt ones
refused.
"""

import numpy as np
from numpy.typing import NDArray

from recipes.demo_voice.training.speech import GRANULE, SAMPLE_RATE

LOUDNESS = 0.09
"""Root mean square of the active parts of every recording."""
_FRAME = 240
_MARGIN = SAMPLE_RATE // 10
_PEAK = 0.95
_QUIETEST = 1e-3
_SHORTEST, _LONGEST = 0.6, 16.0
_SLOWEST, _FASTEST = 4.0, 26.0


class Refused(Exception):
    """A recording that is not fit to learn from; the argument says why, in one word."""


def finish(samples: NDArray[np.float32], characters: int) -> NDArray[np.int16]:
    """Samples at 24 kHz of a text of `characters` characters, as signed 16-bit ones, a whole number
    of granules.

    About 100 ms around the speech are kept, 10 ms at either end fade. Raises Refused: `silent`,
    `peaky` (too quiet at full scale), `short` and `long` in seconds, `slow` and `fast` in
    characters per second.
    """
    frames = len(samples) // _FRAME
    power = (
        np.square(samples[: frames * _FRAME].reshape(frames, _FRAME)).mean(axis=1)
        if frames
        else np.zeros(1, np.float32)
    )
    level = np.sqrt(power)
    active = np.sqrt(power[level > 0.1 * level.max()].mean()) if level.max() > _QUIETEST else 0.0
    if active < _QUIETEST:
        raise Refused("silent")
    loud = np.flatnonzero(level > 0.02 * level.max())
    start = max(0, int(loud[0]) * _FRAME - _MARGIN)
    stop = min(len(samples), (int(loud[-1]) + 1) * _FRAME + _MARGIN)
    granules = -(-(stop - start) // GRANULE)
    _check(granules * GRANULE / SAMPLE_RATE, characters)
    piece = samples[start : start + granules * GRANULE].copy()
    gain = min(LOUDNESS / active, _PEAK / float(np.abs(piece).max()))
    if gain < 0.5 * LOUDNESS / active:
        raise Refused("peaky")
    piece *= gain
    ramp = np.linspace(0, 1, _FRAME, dtype=np.float32)
    piece[:_FRAME] *= ramp
    piece[-_FRAME:] *= ramp[::-1]
    whole = np.zeros(granules * GRANULE, np.int16)
    whole[: len(piece)] = np.rint(piece * 32767)
    return whole


def _check(seconds: float, characters: int) -> None:
    for wrong, reason in (
        (seconds < _SHORTEST, "short"),
        (seconds > _LONGEST, "long"),
        (characters < _SLOWEST * seconds, "slow"),
        (characters > _FASTEST * seconds, "fast"),
    ):
        if wrong:
            raise Refused(reason)
