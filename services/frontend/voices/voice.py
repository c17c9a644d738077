"""A voice: the prompt and the speaker embedding that condition the models. It is immutable; a hash
identifies its content.

The start of the decoder's prompt may be cut, so that the first hop of every sentence needs few new
tokens (`cosyserve.generations.prompt_cut`).
"""

import hashlib
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cosyserve.generations.generation import Generation
from cosyserve.generations.prompt_cut import SILENT_TOKENS, audible_first_hop, cut_for
from cosyserve.spec import (
    CHUNK_TOKENS,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    MEL_FRAMES_PER_TOKEN,
    SPEAKER_DIMENSION,
    SPEECH_VOCABULARY,
    TOKENS_PER_SECOND,
)
from services.frontend.voices.voice_notes import Labels

MOST_PROMPT_TOKENS = 1500
MOST_PROMPT_TEXT_IDS = 2048
LONGEST_ID = 128
_TOKEN_BYTES = 4 * MEL_FRAMES_PER_TOKEN * MEL_BINS


def cut_of(prompt_tokens: int, generation: Generation) -> int:
    """Tokens to leave out at the start of a prompt of `prompt_tokens`, 0 to 24."""
    return cut_for(prompt_tokens, audible_first_hop(generation))


def tokens_before_sound(decoder_tokens: int, generation: Generation) -> int:
    """New speech tokens, including look-ahead, that must be generated before the first audible
    sample, after a decoder prompt of `decoder_tokens`: 19 to 43 of CosyVoice2, 11 to 35 of
    CosyVoice3.
    """
    first = CHUNK_TOKENS - decoder_tokens % CHUNK_TOKENS
    inaudible = generation.hold_back_tokens + SILENT_TOKENS
    return first + (0 if first > inaudible else CHUNK_TOKENS) + LOOKAHEAD_TOKENS


@dataclass(frozen=True)
class Voice:
    """One voice, in the form of `voice.proto`.

    prompt_text_ids: text token ids of the prompt's transcript. prompt_speech_tokens: 25 per second.
    prompt_mel: little-endian float32 [2 * n, 80], time-major, 50 frames per second, of the last n
    prompt_speech_tokens, which the decoder receives. n is all of them unless the prompt was cut
    (`services.frontend.voices.voice`). speaker_embedding: little-endian float32 [192], not
    normalised. prompt_text_ids, prompt_speech_tokens and prompt_mel are empty for a voice without a
    prompt. Raises ValueError naming an invalid field.
    """

    id: str
    prompt_text_ids: tuple[int, ...]
    prompt_speech_tokens: tuple[int, ...]
    prompt_mel: bytes
    speaker_embedding: bytes
    content_hash: str = field(init=False)
    """The first 32 hexadecimal digits of a sha256 over the four fields after `id`, in order: of
    each its length in bytes (uint64) and its content (ids as int32), all little-endian. `id` is not
    hashed.
    """

    def __post_init__(self) -> None:
        if not 1 <= len(self.id) <= LONGEST_ID:
            raise ValueError(f"id has {len(self.id)} characters, allowed 1 to {LONGEST_ID}")
        text_ids, tokens = self.prompt_text_ids, self.prompt_speech_tokens
        _require_ids("prompt_text_ids", text_ids, 2**31, MOST_PROMPT_TEXT_IDS, "ids")
        _require_ids("prompt_speech_tokens", tokens, SPEECH_VOCABULARY, MOST_PROMPT_TOKENS, "tokens")
        _require_mel(self.prompt_mel, len(tokens))
        _require_floats("speaker_embedding", self.speaker_embedding, SPEAKER_DIMENSION)
        parts = (_as_int32(text_ids), _as_int32(tokens), self.prompt_mel, self.speaker_embedding)
        object.__setattr__(self, "content_hash", digest_of(parts)[:32])

    @property
    def bytes_held(self) -> int:
        """Approximate memory in bytes; an id takes 40, as a Python integer in a tuple."""
        return (
            len(self.prompt_mel)
            + len(self.speaker_embedding)
            + 40 * (len(self.prompt_text_ids) + len(self.prompt_speech_tokens))
            + 500
        )

    @property
    def decoder_tokens(self) -> int:
        """How many of the prompt's speech tokens, counted from its end, the decoder receives."""
        return len(self.prompt_mel) // _TOKEN_BYTES

    def cut(self, tokens: int) -> "Voice":
        """This voice without the first `tokens` tokens of the decoder's prompt. At least one token
        remains; of a voice without a prompt only 0 can be cut. Raises ValueError.
        """
        if not 0 <= tokens < max(self.decoder_tokens, 1):
            raise ValueError(f"{tokens} of {self.decoder_tokens} prompt tokens cannot be left out")
        return replace(self, prompt_mel=self.prompt_mel[tokens * _TOKEN_BYTES :])

    @property
    def prompt_seconds(self) -> float:
        """Duration of the prompt's speech, including a part that the decoder does not receive."""
        return len(self.prompt_speech_tokens) / TOKENS_PER_SECOND


def digest_of(parts: Iterable[bytes]) -> str:
    """Hexadecimal sha256 over `parts`, of each its length in bytes (uint64, little-endian) and its
    content.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return digest.hexdigest()


def _require_mel(mel: bytes, tokens: int) -> None:
    if len(mel) % _TOKEN_BYTES or len(mel) > tokens * _TOKEN_BYTES or (tokens and not mel):
        raise ValueError(
            f"prompt_mel has {len(mel)} bytes, expected float32 [2 n, {MEL_BINS}] with n from {min(tokens, 1)} to "
            f"{tokens}"
        )
    _require_floats("prompt_mel", mel, len(mel) // 4)


def _as_int32(ids: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(ids)}i", *ids)


def _require_ids(name: str, ids: tuple[int, ...], bound: int, most: int, kind: str) -> None:
    if len(ids) > most:
        raise ValueError(f"{name} has {len(ids)} {kind}, allowed at most {most}")
    for index, value in enumerate(ids):
        if not 0 <= value < bound:
            raise ValueError(f"{name} holds {value} at place {index}, allowed 0 to {bound - 1}")


def _require_floats(name: str, data: bytes, count: int) -> None:
    if len(data) != 4 * count:
        raise ValueError(f"{name} has {len(data)} bytes, expected {count} float32 values")
    invalid = next(
        (index for index, value in enumerate(struct.unpack(f"<{count}f", data)) if not math.isfinite(value)), None
    )
    if invalid is not None:
        raise ValueError(f"{name} is not finite at place {invalid}")


@dataclass(frozen=True)
class VoiceSummary:
    """A voice in the list of voices."""

    id: str
    content_hash: str
    prompt_seconds: float
    is_default: bool
    labels: Labels
    language_code: str
    created: str
    """ISO 8601; empty when unknown."""
    is_preset: bool
    owner: str = ""
    """Tenant whose voice it is; empty: everyone's."""


@dataclass(frozen=True)
class Details:
    """A list entry with the details that are only returned for a single voice."""

    summary: VoiceSummary
    voice: Voice
    transcript: str
    provenance: str
