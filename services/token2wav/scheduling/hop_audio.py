"""A finished hop on its way from the scheduler to the stream, with the time spans of its
computation.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosyserve.telemetry import Timing
from services.token2wav.decoders.interface import Decoded
from services.token2wav.inputs.chunking import Hop

PROMPT_CACHED = "prompt_cached"
"""Attribute of a sentence's first span: whether the state of its voice's prompt was cached when the
sentence started.
"""


@dataclass(frozen=True)
class HopAudio:
    """A finished hop. samples: float32 [n], new ones only, possibly none."""

    hop: Hop
    samples: NDArray[np.float32]
    timings: list[Timing]

    @property
    def last(self) -> bool:
        """Whether this is the last hop of the sentence."""
        return self.hop.final

    def joined(self, following: "HopAudio") -> "HopAudio":
        """Both hops as one longer hop."""
        hop = Hop(self.hop.index, self.hop.start, following.hop.end, following.hop.final)
        return HopAudio(hop, np.concatenate([self.samples, following.samples]), self.timings + following.timings)


Deliver = Callable[["HopAudio | Exception"], None]
"""Receives each finished hop, or the error that ends the stream. Called from the batcher's thread;
must not block.
"""


def decode_timings(hop: int, decoded: Decoded) -> list[Timing]:
    """The time spans of flow and vocoder in one step of hop number `hop`."""
    flow = Timing("token2wav.flow", *decoded.flow_ns, {"hop": hop, "tokens": decoded.tokens, "frames": decoded.frames})
    if decoded.vocoder_ns is None:
        return [flow]
    attributes: dict[str, int | float | str] = {
        "hop": hop,
        "frames": decoded.frames,
        "samples": int(decoded.samples.size),
    }
    return [flow, Timing("token2wav.vocoder", *decoded.vocoder_ns, attributes)]
