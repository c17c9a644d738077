"""What a caller may request from the decoder, checked before any work is done; and how the request
is cancelled while a call computes it.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import InvalidRequest
from cosyserve.spec import (
    EULER_STEPS,
    FEWEST_EULER_STEPS,
    MEL_BINS,
    MEL_FRAMES_PER_TOKEN,
    SPEAKER_DIMENSION,
    SPEECH_VOCABULARY,
)

MAX_TOKENS = 4096
"""Maximum tokens of a sentence; together with the longest prompt it stays within the 15,000 frames
of the flow's noise table.
"""
MAX_PROMPT_TOKENS = 1500
MIN_SPEED, MAX_SPEED = 0.5, 2.0


class Profile(Enum):
    """Which reference arithmetic the decoder follows; values as in Profile of profile.proto."""

    CONTINUOUS = 1
    UPSTREAM = 2
    OFFLINE = 3


class Growth(Enum):
    """How the lengths of later hops grow; values as in HopSchedule.Growth of profile.proto."""

    FIXED = 1
    EXPONENTIAL = 2


@dataclass(frozen=True)
class Hops:
    """The schedule of hops that the caller wants. growth None: fixed in the continuous profile,
    exponential in the upstream profile.
    """

    first_hop_tokens: int = 1
    growth: Growth | None = None
    max_hop_tokens: int = 100

    def __post_init__(self) -> None:
        _within("hops.first_hop_tokens", self.first_hop_tokens, 1, 100)
        _within("hops.max_hop_tokens", self.max_hop_tokens, 25, 400)


@dataclass(frozen=True, eq=False)
class Voice:
    """The voice as it came with the request.

    tokens: int64 [P], 25 Hz. mel: float32 [2P, 80], 50 Hz, time-major. embedding: float32 [192].
    key: content hash under which the prompt's state may be cached; empty: it is not cached.
    """

    tokens: NDArray[np.int64]
    mel: NDArray[np.float32]
    embedding: NDArray[np.float32]
    key: str = ""

    @cached_property
    def state_key(self) -> str:
        """Cache key of the prompt's state; empty if the state must not be cached.

        The caller's key alone would let one request decide what another one hears. So the hash also
        covers the content that came with the key. Each part is preceded by its length, because
        otherwise bytes could move from one part to the next under the same hash.
        """
        if not self.key:
            return ""
        key = self.key.encode()
        digest = hashlib.sha256(len(key).to_bytes(8, "little") + key)
        for array in (self.tokens, self.mel, self.embedding):
            digest.update(array.nbytes.to_bytes(8, "little"))
            digest.update(array.tobytes())
        return digest.hexdigest()

    @classmethod
    def from_bytes(cls, tokens: list[int], mel: bytes, embedding: bytes, key: str) -> "Voice":
        """Build a voice from the fields of a message. mel, embedding: little-endian float32. Raises
        InvalidRequest for sizes or values that do not fit.
        """
        if len(tokens) > MAX_PROMPT_TOKENS:
            raise InvalidRequest(
                f"prompt_speech_tokens has {len(tokens)} tokens; at most {MAX_PROMPT_TOKENS} are allowed"
            )
        frames = MEL_FRAMES_PER_TOKEN * len(tokens)
        needed = frames * MEL_BINS * 4
        if len(mel) != needed:
            raise InvalidRequest(
                f"prompt_mel has {len(mel)} bytes; {len(tokens)} prompt tokens need float32 [{frames}, {MEL_BINS}] = "
                f"{needed} bytes"
            )
        if len(embedding) != SPEAKER_DIMENSION * 4:
            raise InvalidRequest(
                f"speaker_embedding has {len(embedding)} bytes; float32 [{SPEAKER_DIMENSION}] = "
                f"{SPEAKER_DIMENSION * 4} bytes are needed"
            )
        return cls(
            checked_tokens("prompt_speech_tokens", tokens),
            _finite("prompt_mel", mel).reshape(frames, MEL_BINS),
            _finite("speaker_embedding", embedding),
            key,
        )


@dataclass(frozen=True)
class Sentence:
    """All inputs that, together with the tokens, determine the samples of one sentence and its
    cuts.
    """

    voice: Voice
    seed: int = 0
    sentence_index: int = 0
    profile: Profile = Profile.CONTINUOUS
    hops: Hops = field(default_factory=Hops)
    speed: float = 1.0
    start_sample: int = 0
    """The caller already has the samples before this one; they are not sent."""
    guards: bool = False
    """Whether silence and saturation are errors, see `services.token2wav.guards`."""
    holds_silence: bool = False
    """With guards: whether audio is held back until something is audible."""
    listener_seconds: float = 0.0
    """Seconds of earlier sentences' audio that the listener has not played yet."""
    utterance: int = 0
    """Number of the request that its sentences share; 0: not known."""
    caller_streams: int = 0
    """Sentences that the caller has in progress on all replicas when this one begins; 0: not
    known.
    """
    withholds_silence: bool = False
    """Whether the caller keeps silence at the end of what it has received back until something
    audible follows (`scheduling.playing_time`).
    """
    deadline: float | None = None
    """When the caller gives up, on the monotonic clock; None: never."""
    euler_steps: int = EULER_STEPS
    """Euler steps in each block; set it by `in_steps`."""

    def __post_init__(self) -> None:
        if not MIN_SPEED <= self.speed <= MAX_SPEED:
            raise InvalidRequest(f"speed is {self.speed:g}; {MIN_SPEED:g} to {MAX_SPEED:g} is allowed")
        if self.profile is Profile.UPSTREAM and self.speed != 1.0:
            raise InvalidRequest(f"speed is {self.speed:g}; PROFILE_UPSTREAM supports speed 1 only")
        if self.start_sample < 0:
            raise InvalidRequest(f"start_sample is {self.start_sample}; it must not be negative")
        if not 0 <= self.listener_seconds < math.inf:
            raise InvalidRequest(f"listener_seconds is {self.listener_seconds:g}; it must be a number from 0")
        if self.caller_streams < 0:
            raise InvalidRequest(f"caller_streams is {self.caller_streams}; it must not be negative")

    def in_steps(self, euler_steps: int) -> "Sentence":
        """The sentence in so many Euler steps, 5 to 10. The state of its prompt is another one
        then, and cached under another key.
        """
        _within("euler_steps", euler_steps, FEWEST_EULER_STEPS, EULER_STEPS)
        if euler_steps == EULER_STEPS:
            return self
        key = f"{self.voice.key} in {euler_steps} steps" if self.voice.key else ""
        voice = Voice(self.voice.tokens, self.voice.mel, self.voice.embedding, key)
        return replace(self, voice=voice, euler_steps=euler_steps)

    @property
    def is_continued(self) -> bool:
        """Whether the listener has already heard part of this request."""
        return self.sentence_index > 0 or self.start_sample > 0


def checked_tokens(name: str, tokens: list[int]) -> NDArray[np.int64]:
    """The ids as int64 [n]. Raises InvalidRequest naming the first id that is not a speech
    token.
    """
    ids = np.asarray(tokens, dtype=np.int64)
    wrong = np.flatnonzero((ids < 0) | (ids >= SPEECH_VOCABULARY))
    if wrong.size:
        raise InvalidRequest(
            f"{name}[{wrong[0]}] is {ids[wrong[0]]}; speech token ids are 0 to {SPEECH_VOCABULARY - 1}"
        )
    return ids


def _finite(name: str, raw: bytes) -> NDArray[np.float32]:
    values = np.frombuffer(raw, dtype="<f4").astype(np.float32)
    if not np.isfinite(values).all():
        raise InvalidRequest(f"{name} holds a value that is not a finite number")
    return values


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidRequest(f"{name} is {value}; {low} to {high} is allowed")


Stop = Callable[[], bool]
"""Polled between two units of work; True means that the result is no longer needed."""


class Cancelled(Exception):
    """Raised inside a call that was stopped between two units of work."""


def never() -> bool:
    """A `Stop` that never stops the work."""
    return False


def raise_if_stopped(stop: Stop) -> None:
    """Raise Cancelled if `stop` returns True."""
    if stop():
        raise Cancelled("stopped between two pieces of work")
