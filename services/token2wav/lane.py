"""One stream as the batcher sees it: which tokens are known, which hop is being spoken, what waits for the reader."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyserve.spec import SAMPLE_RATE
from cosyserve.timing import Timing
from services.token2wav.chunking import Hop, Schedule
from services.token2wav.decoder import Decoded, Decoder, StreamState, Stride
from services.token2wav.request import Sentence

PROMPT_CACHED = "prompt_cached"
"""Attribute of a sentence's first span: whether the state behind its voice's prompt was kept when it started."""


@dataclass(frozen=True)
class HopAudio:
    """A finished hop. samples: float32 [n], new ones only, possibly none."""

    hop: Hop
    samples: NDArray[np.float32]
    timings: list[Timing]

    @property
    def last(self) -> bool:
        """Whether the sentence is over."""
        return self.hop.final


Deliver = Callable[["HopAudio | Exception"], None]
"""Takes each finished hop, or the error that ends the stream. Called from the batcher's thread; must not block."""


@dataclass(eq=False)
class Lane:
    """Written by the event loop and the batcher's thread under the batcher's lock; `state` is touched by the batcher's thread only."""

    sentence: Sentence
    decoder: Decoder[Any]
    schedule: Schedule
    deliver: Deliver
    reserved: int
    """Bytes of memory it was promised when it was admitted: for its prompt and the first tokens behind it."""
    bytes: int
    """Memory counted for this stream: what its prompt needs at first, what it holds later."""
    state: StreamState | None = None
    tokens: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    finished: bool = False
    hop: Hop | None = None
    """The hop that is being spoken, or the last one that was."""
    speaking: bool = False
    waiting: bool = False
    """A finished hop has not been taken by the reader; no further one is begun."""
    cancelled: bool = False
    has_sound: bool = False
    plays_until: float = 0.0
    """When a player that began with the first sound runs out of what has been made, in seconds of `time.monotonic`."""
    served: int = 0
    """Number of the last step that this stream took part in."""
    made: list[Decoded] = field(default_factory=list)

    def next_stride(self) -> Stride[StreamState] | None:
        """The next piece of work; None when the stream is not started yet or has to wait for tokens or the reader."""
        if self.state is None:
            return None
        if not self.speaking and not self.waiting:
            due = self.schedule.next(self.hop, len(self.tokens), self.finished)
            if due is not None:
                self.hop, self.speaking = due, True
        if self.speaking and self.hop is not None:
            end = self.schedule.prompt_tokens + self.hop.end
            until = self.state.reach(end)
            return Stride(self.state, self.tokens, until, self.hop.final and until == end)
        early = self.state.early(len(self.tokens))
        return Stride(self.state, self.tokens, self.state.reach(early), final=False) if early > self.state.position else None

    def add(self, decoded: Decoded, until: int) -> HopAudio | None:
        """Keep what a step made; returns the hop when this was its last step.

        until: the position that the step reached, in tokens from the first prompt token.
        """
        self.made.append(decoded)
        if not self.speaking or self.hop is None or until < self.schedule.prompt_tokens + self.hop.end:
            return None
        made, self.made, self.speaking, self.waiting = self.made, [], False, True
        samples = np.concatenate([part.samples for part in made])
        if samples.size:
            # A player that has run dry waits and then goes on from now.
            self.plays_until = max(self.plays_until, time.monotonic()) + samples.size / SAMPLE_RATE
            self.has_sound = True
        timings = [timing for part in made for timing in _timings(self.hop.index, part)]
        if self.hop.index == 0 and self.state is not None and self.state.prompt_cached is not None:
            timings[0].attributes[PROMPT_CACHED] = self.state.prompt_cached
        return HopAudio(self.hop, samples, timings)


def _timings(hop: int, decoded: Decoded) -> list[Timing]:
    flow = Timing("token2wav.flow", *decoded.flow_ns, {"hop": hop, "tokens": decoded.tokens, "frames": decoded.frames})
    if decoded.vocoder_ns is None:
        return [flow]
    attributes: dict[str, int | float | str] = {"hop": hop, "frames": decoded.frames, "samples": int(decoded.samples.size)}
    return [flow, Timing("token2wav.vocoder", *decoded.vocoder_ns, attributes)]
