"""Which 16-bit samples are above a level, in dB of full scale."""

import numpy as np
from numpy.typing import NDArray

_FULL_SCALE = 32768
ONSET_DBFS = -50.0
"""Quieter samples at both ends of an utterance are silence, which ONSET_TRIMMED removes."""
LEAD_MILLISECONDS = 20
"""Milliseconds of silence kept before the first louder sample: consonants begin below the level."""
AUDIBLE_DBFS = -40.0
"""The first louder sample is the first audible one."""


def samples_above(samples: NDArray[np.int16], dbfs: float) -> NDArray[np.intp]:
    """Ascending indices of the samples ([n] int16) whose magnitude is above `dbfs`."""
    limit = _FULL_SCALE * 10 ** (dbfs / 20)
    # Not abs(): that of -32768 is no int16.
    return np.flatnonzero((samples > limit) | (samples < -limit))
