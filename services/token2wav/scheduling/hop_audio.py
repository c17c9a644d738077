"""The sound of one finished hop."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosyserve.audio.encoding import to_pcm
from cosyserve.telemetry import Timing
from services.token2wav.inputs.chunking import Hop


@dataclass(frozen=True)
class HopAudio:
    """A finished hop. samples: float32 [n] at 24 kHz, new ones only, possibly none. timings: time
    spans of flow and vocoder for this hop. start_sample: position of the samples in the sentence,
    set by the stream that yields the hop.
    """

    hop: Hop
    samples: NDArray[np.float32]
    timings: list[Timing]
    start_sample: int = 0

    @property
    def last(self) -> bool:
        """Whether this is the last hop of the sentence."""
        return self.hop.final

    @property
    def end_sample(self) -> int:
        """Samples computed up to the end of this hop."""
        return self.start_sample + self.samples.size

    @property
    def audio(self) -> bytes:
        """The samples as s16le, encoded at each call."""
        return to_pcm(self.samples)

    def joined(self, following: "HopAudio") -> "HopAudio":
        """Both hops as one longer hop."""
        hop = Hop(self.hop.index, self.hop.start, following.hop.end, following.hop.final)
        return HopAudio(hop, np.concatenate([self.samples, following.samples]), self.timings + following.timings)


Deliver = Callable[["HopAudio | Exception"], None]
"""Receives each finished hop, or the error that ends the stream. Called from the batcher's thread;
must not block.
"""
