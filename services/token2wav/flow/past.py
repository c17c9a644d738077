"""What a stream keeps of its past between two blocks, where its blocks may lie, and which noise
they start from.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from cosyserve.errors import InternalFault
from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.stream_cache import StreamCache

KEPT_FRAMES = 100
"""Frames that streams with a bounded past keep besides those of their prompt: two seconds."""


class Past(Protocol):
    """Of one way to stream. prompt: tokens of the prompt; position: tokens computed, prompt
    included.
    """

    @property
    def whole_prompt(self) -> bool:
        """Whether the prompt is one block, with its own first tokens as look-ahead."""

    @property
    def held_frames(self) -> int | None:
        """Frames behind the prompt that the estimator's state holds at most; None: no limit."""

    def check(self, prompt: int, position: int, count: int, seen: int) -> None:
        """Raises InternalFault where no block of `count` tokens may begin at `position` and see
        `seen` tokens behind it.
        """

    def first_noise(self, prompt: int, position: int) -> int:
        """The frame of the noise table at which a block begins."""

    def kept(self, prompt: int, cache: StreamCache) -> StreamCache:
        """What the estimator's next block sees of `cache`, which holds everything so far."""


@dataclass(frozen=True)
class WholePast:
    """Everything, in blocks on the grid of the first prompt token: CosyVoice2 and CosyVoice3."""

    whole_prompt: bool = False
    held_frames: None = None

    def check(self, prompt: int, position: int, count: int, seen: int) -> None:
        """See `Past`."""
        _check_grid(position, count, seen)

    def first_noise(self, prompt: int, position: int) -> int:
        """The same for a frame in every call."""
        return MEL_FRAMES_PER_TOKEN * position

    def kept(self, prompt: int, cache: StreamCache) -> StreamCache:
        """The same cache."""
        return cache


@dataclass(frozen=True)
class PromptAndNewest:
    """The prompt, which is one block, and the two newest of the blocks of 25 tokens behind it
    (docs/decisions/0038-step-audio2-keeps-prompt-and-newest.md).
    """

    whole_prompt: bool = True
    held_frames: int | None = KEPT_FRAMES + CHUNK_FRAMES
    """The block that is computed included."""

    def check(self, prompt: int, position: int, count: int, seen: int) -> None:
        """See `Past`."""
        if position < prompt:
            if position or count != prompt or seen != min(prompt, LOOKAHEAD_TOKENS):
                raise InternalFault(
                    f"a block of {count} tokens at {position} with {seen} behind it; the prompt of {prompt} is one "
                    "block and sees its own beginning"
                )
            return
        _check_grid(position - prompt, count, seen)

    def first_noise(self, prompt: int, position: int) -> int:
        """As for CosyVoice2: the same for a frame in every call, whatever is kept."""
        return MEL_FRAMES_PER_TOKEN * position

    def kept(self, prompt: int, cache: StreamCache) -> StreamCache:
        """At most three blocks."""
        return cache.without_middle(1 if prompt else 0, KEPT_FRAMES // CHUNK_FRAMES)


@dataclass(frozen=True)
class ReferenceCut:
    """What Step-Audio2's own streaming keeps, call for call, in calls of any length.

    It puts new keys and values in front of the old ones, and then keeps the first 2P and the last
    100 frames of a cache that is longer: the newest ones and the end of the prompt. Its noise
    begins at the length of the cache, so that it stands still once the cache is cut.
    """

    whole_prompt: bool = True
    held_frames: None = None

    def check(self, prompt: int, position: int, count: int, seen: int) -> None:
        """Every call is allowed."""

    def first_noise(self, prompt: int, position: int) -> int:
        """The length of the cache, which is 2P + 100 at most."""
        return MEL_FRAMES_PER_TOKEN * min(position, prompt + KEPT_FRAMES // MEL_FRAMES_PER_TOKEN)

    def kept(self, prompt: int, cache: StreamCache) -> StreamCache:
        """As one block, the newest frames first."""
        newest = MEL_FRAMES_PER_TOKEN * prompt
        attentions = []
        for blocks in cache.attentions:
            joined = torch.cat(blocks[::-1], dim=3)
            if joined.shape[3] > newest + KEPT_FRAMES:
                joined = torch.cat((joined[:, :, :, :newest], joined[:, :, :, -KEPT_FRAMES:]), dim=3)
            attentions.append((joined,))
        return StreamCache(cache.convolutions, tuple(attentions))


WHOLE_PAST = WholePast()
PROMPT_AND_NEWEST = PromptAndNewest()
REFERENCE_CUT = ReferenceCut()


def _check_grid(position: int, count: int, seen: int) -> None:
    """position: from the beginning of the grid."""
    if position % CHUNK_TOKENS:
        raise InternalFault(
            f"a block after the last: the stream ended off the grid of {CHUNK_TOKENS} tokens, at {position}"
        )
    if count > CHUNK_TOKENS or seen > LOOKAHEAD_TOKENS or (count < CHUNK_TOKENS and seen):
        raise InternalFault(
            f"a block of {count} tokens with {seen} behind it; blocks have {CHUNK_TOKENS} and see {LOOKAHEAD_TOKENS}"
        )
