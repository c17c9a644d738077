"""How long a player is kept busy by the audio of a stream that was delivered.

Silence in front of an utterance does not count, because players may skip it, and a trimmed
utterance (ONSET_TRIMMED of synthesis.proto) has none. Nor does silence at the end of what was
delivered while the caller keeps it back, because the utterance may be over there
(`DecodeSetup.withholds_silence`): it counts with what follows, or a player would run dry in the
pauses of a sentence.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosyserve.spec import SAMPLE_RATE
from services.token2wav.guards.loudness import TAIL_SAMPLES, audible_from, quiet_at_end


@dataclass
class PlayingTime:
    """is_heard: whether something audible was delivered, or the listener heard something before
    this stream. withholds: whether the caller keeps silence at the end back.
    """

    is_heard: bool = False
    withholds: bool = False
    _is_audible: bool = False
    """Whether anything of this sentence was: silence in front of it is not kept back."""
    _quiet: int = 0
    """Samples at the end of what was delivered since the last audible one."""

    @property
    def withheld_seconds(self) -> float:
        """What was delivered and the caller keeps back."""
        return _beyond_tail(self._quiet) / SAMPLE_RATE

    def seconds(self, samples: NDArray[np.float32], *, last: bool) -> float:
        """Playing time that `samples` (float32 [n] at 24 kHz, all that was not delivered before)
        would add; while nothing has been heard, from the first audible one on, or all of it if it
        has none. last: nothing of the sentence follows, so that all of it is sent or none missed.
        """
        begin = 0 if self.is_heard else audible_from(samples) or 0
        kept_back = 0 if last else _beyond_tail(self._quiet_after(samples))
        return self.withheld_seconds + (samples.size - begin - kept_back) / SAMPLE_RATE

    def deliver(self, samples: NDArray[np.float32], *, last: bool) -> float:
        """The same, and they are delivered."""
        seconds = self.seconds(samples, last=last)
        self.skip(samples)
        if last:
            self._quiet = 0
        self.is_heard = self.is_heard or self._is_audible
        return seconds

    def skip(self, samples: NDArray[np.float32]) -> None:
        """The caller has these already: it may keep back what they end with."""
        self._quiet = self._quiet_after(samples)
        self._is_audible = self._is_audible or audible_from(samples) is not None

    def _quiet_after(self, samples: NDArray[np.float32]) -> int:
        quiet = quiet_at_end(samples)
        if quiet < samples.size:
            return quiet if self.withholds else 0
        return self._quiet + quiet if self.withholds and self._is_audible else 0


def _beyond_tail(quiet: int) -> int:
    return max(quiet - TAIL_SAMPLES, 0)
