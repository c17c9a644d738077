"""DNSMOS (Reddy et al. 2022, DNSMOS P.835): what listeners would answer on the scale of 1 to 5,
estimated by Microsoft's network.
"""

import numpy as np
import soxr
from speechmos import dnsmos

from tools.quality.recordings.recording import Recording

_SAMPLE_RATE = 16_000


def overall_quality(recording: Recording) -> float:
    """The overall score. Sound shorter than the network's 9 s is repeated, as its authors do."""
    sound = np.clip(soxr.resample(recording.samples, recording.sample_rate, _SAMPLE_RATE), -1.0, 1.0)
    return float(dnsmos.run(sound, _SAMPLE_RATE)["ovrl_mos"])
