"""How long a player is kept busy by the audio of a stream that was delivered.

The caller need not send all of it at once: a trimmed utterance (ONSET_TRIMMED of synthesis.proto)
has no silence in front, and silence beyond its tail waits until something audible follows, because
the utterance may be over. What waits does not count, or a player would run dry in the pauses of a
sentence. Where the caller sends every sample, its player has that much more.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosyserve.spec import SAMPLE_RATE
from services.token2wav.guards.loudness import TAIL_SAMPLES, audible_from, quiet_at_end


@dataclass
class PlayingTime:
    """is_heard: whether something audible was delivered, or the listener heard something before
    this stream.
    """

    is_heard: bool = False
    _quiet: int = 0
    """Samples at the end of what was delivered since the last audible one."""

    def seconds(self, samples: NDArray[np.float32], *, last: bool) -> float:
        """Playing time that `samples` (float32 [n] at 24 kHz, all that was not delivered before)
        would add; while nothing has been heard, from the first audible one on, or all of it if it
        has none. last: nothing of the sentence follows, so that all of it is sent or none missed.
        """
        begin = 0 if self.is_heard else audible_from(samples)
        if begin is None:
            return samples.size / SAMPLE_RATE
        waiting = 0 if last else _beyond_tail(self._quiet_after(samples))
        return (_beyond_tail(self._quiet) + samples.size - begin - waiting) / SAMPLE_RATE

    def deliver(self, samples: NDArray[np.float32], *, last: bool) -> float:
        """The same, and they are delivered."""
        seconds = self.seconds(samples, last=last)
        self.is_heard = self.is_heard or audible_from(samples) is not None
        self._quiet = self._quiet_after(samples) if self.is_heard else 0
        return seconds

    def _quiet_after(self, samples: NDArray[np.float32]) -> int:
        quiet = quiet_at_end(samples)
        return self._quiet + quiet if quiet == samples.size else quiet


def _beyond_tail(quiet: int) -> int:
    return max(quiet - TAIL_SAMPLES, 0)
