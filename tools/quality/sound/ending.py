"""Does the sound come to rest, or is it cut off?"""

from dataclasses import dataclass

import numpy as np

from tools.quality.recordings.recording import Recording
from tools.quality.sound.faults import loudness

_TAIL_SECONDS = 0.100
_LAST_SECONDS = 0.020
_HIGHEST_LAST_DECIBELS = -20.0


@dataclass(frozen=True)
class Ending:
    """Levels in dB relative to the whole sentence. tail: of its last 100 ms. last: of its last 20
    ms.
    """

    tail_decibels: float
    last_decibels: float

    @property
    def cut(self) -> bool:
        """Whether the last 20 ms are still louder than 20 dB below the sentence: speech has not
        come to rest.
        """
        return self.last_decibels > _HIGHEST_LAST_DECIBELS


def ending(recording: Recording) -> Ending:
    """Of one sentence; silence throughout counts as at rest."""
    whole = loudness(recording.samples)

    def level(seconds: float) -> float:
        part = loudness(recording.samples[-round(seconds * recording.sample_rate) :])
        return 20 * float(np.log10(max(part, 1e-6) / max(whole, 1e-3)))

    return Ending(level(_TAIL_SECONDS), level(_LAST_SECONDS))
