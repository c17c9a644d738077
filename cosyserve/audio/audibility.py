"""Which samples are loud enough to be heard, and the time to the first of them: the time to the
first byte plus the silence at the start of the audio.
"""

import numpy as np
from numpy.typing import NDArray

from cosyserve.audio import g711
from cosyserve.audio.encoding import Encoding

_FULL_SCALE = 32768
ONSET_DBFS = -50.0
"""Quieter samples at both ends of an utterance are silence, which ONSET_TRIMMED removes."""
LEAD_MILLISECONDS = 20
"""Milliseconds of silence kept before the first louder sample: consonants begin below the level."""
TAIL_MILLISECONDS = 100
"""Milliseconds of silence kept after the last louder sample: sounds fade out below the level."""
AUDIBLE_DBFS = -40.0
"""The first louder sample is the first audible one."""


def samples_above(samples: NDArray[np.int16], dbfs: float) -> NDArray[np.intp]:
    """Ascending indices of the samples ([n] int16) whose magnitude is above `dbfs`, which
    is below 0.
    """
    # A whole number, so that the samples are not converted to compare them.
    limit = int(_FULL_SCALE * 10 ** (dbfs / 20))
    # Not abs(): that of -32768 is no int16.
    return np.flatnonzero((samples > limit) | (samples < -limit))


class FirstAudible:
    """A simulated player without latency: it starts with the first message and plays each one as
    soon as it is there and the previous one is over.

    So without underruns the result is the arrival of the first message plus the audio before the
    first sample above -40 dBFS.
    """

    def __init__(self, encoding: Encoding, sample_rate: int) -> None:
        """The format of the audio that `arrived` takes."""
        self.seconds: float | None = None
        """Time at which the first audible sample is played, on the clock of `arrived`; None before
        that.
        """
        self._encoding = encoding
        self._sample_rate = sample_rate
        self._played = 0.0

    def arrived(self, now: float, audio: bytes) -> None:
        """A message (whole samples, in order) arrived at `now`, in seconds of a monotonic clock."""
        if self.seconds is not None:
            return
        begin = max(now, self._played)
        audible = samples_above(_linear(audio, self._encoding), AUDIBLE_DBFS)
        if audible.size:
            self.seconds = begin + int(audible[0]) / self._sample_rate
        self._played = begin + len(audio) / self._encoding.bytes_per_sample / self._sample_rate


def _linear(audio: bytes, encoding: Encoding) -> NDArray[np.int16]:
    if encoding is Encoding.LINEAR16:
        return np.frombuffer(audio, "<i2")
    values = g711.mulaw_values() if encoding is Encoding.MULAW else g711.alaw_values()
    return values[np.frombuffer(audio, np.uint8)]
