"""The seam between those who schedule (batcher, stream) and those who compute (continuous,
upstream, offline, fake).

Positions count tokens from the first prompt token, generated tokens from the first token that is
spoken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import CosyserveError
from services.token2wav.inputs.request import Sentence, Voice


@dataclass(frozen=True)
class Decoded:
    """What one step made for one stream.

    samples: float32 [n] at 24 kHz, new ones only, in [-1, 1]. tokens: grid tokens worked on, prompt
    included. frames: new mel frames at 50 Hz, prompt excluded. flow_ns, vocoder_ns: wall-clock
    start and end in nanoseconds since the epoch; streams of one step share them. vocoder_ns is None
    when the step ended inside the prompt.
    """

    samples: NDArray[np.float32]
    tokens: int
    frames: int
    flow_ns: tuple[int, int]
    vocoder_ns: tuple[int, int] | None


class StreamState(Protocol):
    """Everything a decoder remembers of one stream. Used by one thread; only `cancel` may come from
    another.
    """

    @property
    def position(self) -> int:
        """Tokens decoded, prompt included."""

    @property
    def bytes(self) -> int:
        """Bytes of memory held; what the prompt cache holds as well is counted there."""

    @property
    def recomputing(self) -> bool:
        """Whether it has given its memory back for good and makes again, at each step, what it does
        not keep.
        """

    @property
    def prompt_cached(self) -> bool | None:
        """Whether the state behind the prompt was kept when the stream started; None when there is
        none that could be.
        """

    def reach(self, end: int) -> int:
        """The position that one step may go to on the way to position `end`, so that streams take
        turns at a fine grain.
        """

    def early(self, tokens: int) -> int:
        """The position up to which work can be done before a hop is due, with `tokens` generated
        tokens known.
        """

    def cancel(self) -> None:
        """Ask a step that is under way to leave this stream out as soon as it can. May be called
        from any thread.
        """


S = TypeVar("S", bound=StreamState)


@dataclass(frozen=True)
class Stride(Generic[S]):
    """What a step shall do for one stream: decode from its position to `until`.

    tokens: all generated tokens known, int64. until: not beyond `reach`. final: the sentence ends
    there; otherwise the look-ahead behind it is among the tokens.
    """

    state: S
    tokens: NDArray[np.int64]
    until: int
    final: bool


class Decoder(Protocol[S]):
    """Streams in, samples out. Holds weights and what may be shared between streams, nothing of any
    one stream.
    """

    @property
    def widest_step(self) -> int:
        """Streams to take in one step at most; 1 where a step does one after the other."""

    @property
    def goes_on_without_room(self) -> bool:
        """Whether streams may take steps together when the memory for their state is used up: it
        then makes again what it cannot keep.
        """

    @property
    def token_bytes(self) -> int:
        """Memory by which a stream grows with each token decoded."""

    def start(self, sentence: Sentence) -> S:
        """A stream at its beginning, or behind the prompt when that state was kept. Raises
        InvalidRequest for an unusable voice.
        """

    def step(self, step_inputs: Sequence[Stride[S]]) -> list[Decoded | CosyserveError | None]:
        """One step_input of each stream, results in the same order; what a stream gets does not depend
        on the others in the step.

        An error: this stream, and no other, can go no further. None: it was cancelled. Raises when
        the step as a whole failed, which ends all its streams.
        """

    def start_bytes(self, voice: Voice) -> int:
        """Memory that a stream of this voice needs for its prompt; 0 when that state is kept. May
        be called from any thread.
        """
