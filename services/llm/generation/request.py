"""A request to a speech-token engine and its results, as plain data without tensors or protobuf."""

import enum
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cosyserve.generations.generation import SilentTokens
from cosyserve.telemetry import Timing

MOST_TOKENS = 4096
"""Most speech tokens of one sentence, in every way of sending its text: the limit of the decoder.
"""
MOST_ARRIVING_IDS = 2048
"""Most text ids of a stream, and of a prompt."""
MOST_PROMPT_SPEECH = 1500
"""Most speech tokens of a prompt."""


class Profile(enum.Enum):
    """Rules of the sampler and of the interleaving of text that arrives over time."""

    CONTINUOUS = "continuous"
    """Reserved ids are masked, no input is fed twice, every sentence has a length limit."""
    UPSTREAM = "upstream"
    """The exact behaviour of the reference implementation, for comparison."""


class FinishReason(enum.Enum):
    END_OF_SPEECH = "end_of_speech"
    LENGTH = "length"


@dataclass(frozen=True)
class Prompt:
    """The voice prompt: text ids below the text vocabulary and speech tokens 0 to 6560, 25 per
    second.
    """

    text_ids: tuple[int, ...] = ()
    speech_tokens: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Source of the random draws: (seed, sentence_index) determines the whole random stream of a
    sentence.
    """

    seed: int = 0
    sentence_index: int = 0
    profile: Profile = Profile.CONTINUOUS


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Number of tokens in the first hop and in each later hop, of those that are spoken."""

    first: int = 25
    rest: int = 25
    silent: SilentTokens | None = None
    """Tokens of which long runs are not spoken; None: every token is spoken."""


TextStream = AsyncIterator[list[int]]


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A request for the tokens of one sentence. `text` holds its ids, or is an iterator over lists
    of them when text arrives over time.
    """

    prompt: Prompt
    text: tuple[int, ...] | TextStream
    sampling: Sampling = Sampling()
    grouping: Grouping = Grouping()
    replay: tuple[int, ...] = ()
    """Tokens that another replica has already generated for this request: they are fed to the model
    and not sent again.
    """
    guarded: bool = False
    """Whether tokens that indicate unusable speech are an error, see
    `services.llm.guards.token_guards`.
    """
    deadline: float | None = None
    """When its caller gives up, on the monotonic clock; None: never."""


@dataclass(frozen=True)
class Outcome:
    """How a sentence ended. `tokens`: number of speech tokens, including replayed ones."""

    reason: FinishReason
    tokens: int
    queue: Timing
    prefill: Timing
    decode: Timing


@dataclass(frozen=True)
class Hop:
    """New speech tokens, in order. The first hop has none and reports that the sentence was
    accepted; empty hops during a replay report progress.

    `timings`: work completed since the previous hop. `outcome`: set on the last hop only.
    """

    tokens: list[int]
    timings: tuple[Timing, ...] = ()
    outcome: Outcome | None = None
