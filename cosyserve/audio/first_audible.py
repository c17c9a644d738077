"""Time to the first audible sample: the time to the first byte plus the silence at the start of the
audio.
"""

import numpy as np
from numpy.typing import NDArray

from cosyserve.audio import g711
from cosyserve.audio.audibility import AUDIBLE_DBFS, samples_above
from cosyserve.audio.encoding import Encoding


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
