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

_SEEN_SECONDS = 0.001
"""Waits that are longer have a span of their own."""


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

    def joined(self, following: "HopAudio") -> "HopAudio":
        """Both as one longer hop."""
        hop = Hop(self.hop.index, self.hop.start, following.hop.end, following.hop.final)
        return HopAudio(hop, np.concatenate([self.samples, following.samples]), self.timings + following.timings)


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
    untaken: int = 0
    """Hops handed out that the reader has not taken. One is begun while one waits, none while two do."""
    cancelled: bool = False
    asked: float | None = None
    """When it had work for the first time, in seconds of the batcher's clock, as all moments here."""
    fed: float | None = None
    """When tokens came last."""
    has_sound: bool = False
    """Sound has been handed out that the caller does not know yet."""
    plays_until: float = 0.0
    """When a player that began with the first sound runs out of what has been handed out."""
    held: HopAudio | None = None
    """Finished sound that is not handed out yet, see `services.token2wav.holding`."""
    held_since: float = 0.0
    held_hops: int = 0
    _spoken: int = 0
    """Samples made before those that are held."""
    served: int = 0
    """Number of the last step that this stream took part in."""
    made: list[Decoded] = field(default_factory=list)

    def next_stride(self) -> Stride[StreamState] | None:
        """The next piece of work; None when the stream is not started yet or has to wait for tokens or the reader."""
        if self.state is None:
            return None
        if not self.speaking and self.untaken < 2:
            due = self.schedule.next(self.hop, len(self.tokens), self.finished)
            if due is not None:
                self.hop, self.speaking = due, True
        if self.speaking and self.hop is not None:
            end = self.schedule.prompt_tokens + self.hop.end
            until = self.state.reach(end)
            return Stride(self.state, self.tokens, until, self.hop.final and until == end)
        early = self.state.early(len(self.tokens))
        return Stride(self.state, self.tokens, self.state.reach(early), final=False) if early > self.state.position else None

    def missing_tokens(self) -> int:
        """Tokens that have yet to come for the hop after the last one that was spoken or begun; 0 when it can be computed."""
        if self.speaking or self.schedule.next(self.hop, len(self.tokens), self.finished) is not None:
            return 0
        return self.schedule.needed(self.hop) - len(self.tokens)

    def add(self, decoded: Decoded, until: int, now: float) -> bool:
        """Keep what a step made; whether the hop is finished with it. Then it is held, together with what is held already.

        until: the position that the step reached, in tokens from the first prompt token.
        """
        self.made.append(decoded)
        if not self.speaking or self.hop is None or until < self.schedule.prompt_tokens + self.hop.end:
            return False
        made, self.made, self.speaking = self.made, [], False
        samples = np.concatenate([part.samples for part in made])
        timings = [timing for part in made for timing in _timings(self.hop.index, part)]
        if self.hop.index == 0 and self.state is not None and self.state.prompt_cached is not None:
            timings[0].attributes[PROMPT_CACHED] = self.state.prompt_cached
        finished = HopAudio(self.hop, samples, timings)
        if self.held is None:
            self.held, self.held_since = finished, now
        else:
            self.held = self.held.joined(finished)
        self.held_hops += 1
        return True

    @property
    def held_seconds(self) -> float:
        """Sound that is held, in seconds of playing time."""
        return 0.0 if self.held is None else self.held.samples.size / SAMPLE_RATE

    def hand_out(self, now: float) -> HopAudio:
        """What is held, for the reader."""
        held = self.held
        assert held is not None  # noqa: S101
        self.held, self.held_hops, self.untaken = None, 0, self.untaken + 1
        if (waited := now - self.held_since) > _SEEN_SECONDS:
            end = time.time_ns()
            held.timings.append(Timing("token2wav.hold", end - int(1e9 * waited), end, {"hop": held.hop.index}))
        self._spoken += held.samples.size
        new = min(held.samples.size, self._spoken - self.sentence.start_sample)
        if new > 0:
            # A player that has run dry waits and then goes on from now.
            self.plays_until = max(self.plays_until, now) + new / SAMPLE_RATE
            self.has_sound = True
        return held


def _timings(hop: int, decoded: Decoded) -> list[Timing]:
    flow = Timing("token2wav.flow", *decoded.flow_ns, {"hop": hop, "tokens": decoded.tokens, "frames": decoded.frames})
    if decoded.vocoder_ns is None:
        return [flow]
    attributes: dict[str, int | float | str] = {"hop": hop, "frames": decoded.frames, "samples": int(decoded.samples.size)}
    return [flow, Timing("token2wav.vocoder", *decoded.vocoder_ns, attributes)]
