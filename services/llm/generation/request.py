"""What one sentence asks of a speech-token engine, and what it gets back. Plain data, no tensors,
no protobuf.
"""

import enum
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cosyserve.timing import Timing

MOST_TOKENS = 4096
"""Speech tokens of one sentence at most, however its text comes: what the decoder takes."""


class Profile(enum.Enum):
    """Which rules the sampler and the text-streaming interleave follow."""

    CONTINUOUS = "continuous"
    """Reserved ids are masked, nothing is fed twice, every sentence has a longest length."""
    UPSTREAM = "upstream"
    """The reference's behaviour to the letter, for comparison."""


class FinishReason(enum.Enum):
    END_OF_SPEECH = "end_of_speech"
    LENGTH = "length"


@dataclass(frozen=True)
class Prompt:
    """The voice's own words: text ids below the text vocabulary and speech tokens 0 to 6560 at 25
    per second.
    """

    text_ids: tuple[int, ...] = ()
    speech_tokens: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Where the random draws come from: (seed, sentence_index) names the whole random stream of a
    sentence.
    """

    seed: int = 0
    sentence_index: int = 0
    profile: Profile = Profile.CONTINUOUS


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Tokens to a hop."""

    first: int = 25
    rest: int = 25


TextStream = AsyncIterator[list[int]]


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One sentence. `text` is its ids, or an iterator over pieces of them when text arrives over
    time.
    """

    prompt: Prompt
    text: tuple[int, ...] | TextStream
    sampling: Sampling = Sampling()
    grouping: Grouping = Grouping()
    replay: tuple[int, ...] = ()
    """Tokens that another replica has made for this very request: taken as made, not sent again."""
    guarded: bool = False
    """Whether tokens that give speech away as unfit are an error, see
    `services.llm.guards.token_guards`.
    """


@dataclass(frozen=True)
class Outcome:
    """How a sentence ended. `tokens` counts all of them, replayed ones included."""

    reason: FinishReason
    tokens: int
    queue: Timing
    prefill: Timing
    decode: Timing


@dataclass(frozen=True)
class Hop:
    """New speech tokens, in order; none in the first hop, which says that the sentence was
    accepted, and in hops that only show progress.

    `timings`: work that is over since the hop before. `outcome`: set on the last hop, and only
    there.
    """

    tokens: list[int]
    timings: tuple[Timing, ...] = ()
    outcome: Outcome | None = None
