"""The interface between scheduling (batcher, stream) and computation (continuous, upstream,
offline, fake).

Positions count tokens from the first prompt token; generated tokens are counted from the first one
after the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import CosyserveError
from services.token2wav.inputs.request import Sentence, Voice


@dataclass(frozen=True)
class Decoded:
    """The result of one step for one stream.

    samples: float32 [n] at 24 kHz, new ones only, in [-1, 1]. tokens: grid tokens computed, prompt
    included. frames: new mel frames at 50 Hz, prompt excluded. flow_ns, vocoder_ns: wall-clock
    start and end in nanoseconds since the epoch; streams of one step share them. vocoder_ns is None
    if the step ended inside the prompt.
    """

    samples: NDArray[np.float32]
    tokens: int
    frames: int
    flow_ns: tuple[int, int]
    vocoder_ns: tuple[int, int] | None


class StreamState(Protocol):
    """The complete state of one stream in a decoder. Used by one thread; only `cancel` may be
    called from another one.
    """

    @property
    def position(self) -> int:
        """Tokens decoded, prompt included."""

    @property
    def bytes(self) -> int:
        """Bytes of memory held; memory that the prompt cache holds as well is counted in the
        cache.
        """

    @property
    def recomputing(self) -> bool:
        """Whether the stream has given up its memory permanently and recomputes at each step what
        it no longer stores.
        """

    @property
    def prompt_cached(self) -> bool | None:
        """Whether the state at the end of the prompt was cached when the stream started; None if
        there is no state that could be cached.
        """

    def reach(self, end: int) -> int:
        """The position that one step may advance to on the way to position `end`, so that streams
        alternate in small units.
        """

    def early(self, tokens: int) -> int:
        """The position up to which work can be done before a hop is due, with `tokens` generated
        tokens known.
        """

    def cancel(self) -> None:
        """Ask a running step to skip this stream as soon as it can. May be called from any
        thread.
        """


@runtime_checkable
class HasPages(Protocol):
    """A decoder whose streams share a pool of pages."""

    @property
    def pages(self) -> tuple[int, int]:
        """Pages that streams hold, and pages that there are. May be called from any thread."""


@runtime_checkable
class DecodesPromptWhole(Protocol):
    """A decoder whose streams may take the prompt as one block, so that the grid of their blocks
    starts behind it.
    """

    @property
    def whole_prompt(self) -> bool:
        """Whether they do."""


def takes_prompt_whole(decoder: object) -> bool:
    """Whether the grid of a decoder's blocks starts behind the prompt."""
    return isinstance(decoder, DecodesPromptWhole) and decoder.whole_prompt


@runtime_checkable
class BoundsItsState(Protocol):
    """A decoder that knows how far the state of a stream grows."""

    def growth_bytes(self, tokens: int) -> int:
        """Bytes that a stream holds after so many generated tokens, without those of its prompt."""


S = TypeVar("S", bound=StreamState)


@dataclass(frozen=True)
class StepInput(Generic[S]):
    """What a step computes for one stream: it decodes from the stream's position to `until`.

    tokens: all generated tokens known, int64. until: not beyond `reach`. final: the sentence ends
    there; otherwise the look-ahead after it is among the tokens.
    """

    state: S
    tokens: NDArray[np.int64]
    until: int
    final: bool


class Decoder(Protocol[S]):
    """Streams in, samples out. Holds weights and what streams may share, but no state of a single
    stream.
    """

    @property
    def widest_step(self) -> int:
        """Maximum number of streams in one step; 1 if a step decodes streams one after the
        other.
        """

    @property
    def goes_on_without_room(self) -> bool:
        """Whether streams may continue to share steps when the memory for their state is exhausted;
        the decoder then recomputes what it cannot store.
        """

    @property
    def takes_fewer_steps(self) -> bool:
        """Whether a sentence may have fewer than ten Euler steps, each in its own number."""

    @property
    def token_bytes(self) -> int:
        """Bytes by which a stream's state grows with each decoded token."""

    def start(self, sentence: Sentence) -> S:
        """A stream at its beginning, or at the end of the prompt if that state was cached."""

    def step(self, step_inputs: Sequence[StepInput[S]]) -> list[Decoded | CosyserveError | None]:
        """Advance each stream by its input; results in the same order. What a stream gets does not
        depend on the other streams in the step.

        An error as result: this stream, and no other, cannot continue. None: the stream was
        cancelled. Raises if the step as a whole failed, which ends all its streams.
        """

    def start_bytes(self, voice: Voice) -> int:
        """Bytes that a stream of this voice needs for its prompt; 0 if that state is cached. May be
        called from any thread.
        """


class SingleStreamDecoder:
    """What decoders have in common whose steps take one stream and which keep no state of
    prompts.
    """

    widest_step: int = 1
    goes_on_without_room: bool = False
    takes_fewer_steps: bool = False
    token_bytes: int = 0

    def start_bytes(self, voice: Voice) -> int:
        """0: no state of the prompt is stored between steps."""
        return 0
