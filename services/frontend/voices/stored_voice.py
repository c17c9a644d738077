"""A stored voice as a file of safetensors: its immutable data and where it comes from."""

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cosyserve.errors import FailedPrecondition
from cosyserve.spec import MEL_BINS, SPEAKER_DIMENSION
from services.frontend.voices.voice import Voice
from services.frontend.voices.voice_notes import UNNAMED_GENERATION, Background

_FORMAT = "cosyserve voice 1"


@dataclass(frozen=True)
class Origin(Background):
    """Where a voice comes from. Never changes. The transcript is also empty when only its token ids
    are known; the creation time is in UTC, to the microsecond.
    """

    request_id: str = ""
    """Of the call that created it; empty when it had none."""


@dataclass(frozen=True)
class StoredVoice:
    """A voice with its origin."""

    voice: Voice
    origin: Origin

    @property
    def bytes_held(self) -> int:
        """Approximate memory."""
        return self.voice.bytes_held + 4 * sum(len(value) for value in vars(self.origin).values()) + 500


def now() -> str:
    """The current time in the format of `Origin.created`."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def to_bytes(stored: StoredVoice, generation: str = UNNAMED_GENERATION) -> bytes:
    """The content of a file. It is different on every call: two creators of the same voice never
    share a file, so neither deletes the other's. generation: name of that of the model that made
    the voice.
    """
    voice = stored.voice
    arrays = {
        "prompt_text_ids": np.array(voice.prompt_text_ids, "<i4"),
        "prompt_speech_tokens": np.array(voice.prompt_speech_tokens, "<i4"),
        "prompt_mel": np.frombuffer(voice.prompt_mel, "<f4").reshape(-1, MEL_BINS),
        "speaker_embedding": np.frombuffer(voice.speaker_embedding, "<f4").reshape(SPEAKER_DIMENSION),
    }
    named = {} if generation == UNNAMED_GENERATION else {"generation": generation}
    header = {"format": _FORMAT, "serial": secrets.token_hex(16), "id": voice.id, **asdict(stored.origin), **named}
    return save(arrays, header)


def file_hash(data: bytes) -> str:
    """The name of the file: 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def from_bytes(data: bytes, generation: str = UNNAMED_GENERATION) -> StoredVoice:
    """The voice of a file's content. Raises ValueError naming what is invalid, and
    FailedPrecondition for a voice of another generation than that of this name.
    """
    try:
        arrays = load(data)
        # The reader of safetensors returns only the arrays; the header is eight bytes of length,
        # then JSON.
        header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"not a safetensors file: {error}") from error
    metadata: dict[str, str] = header.get("__metadata__", {})
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"format is {metadata.get('format')!r}, expected {_FORMAT!r}")
    made_for = metadata.get("generation", UNNAMED_GENERATION)
    if made_for != generation:
        raise FailedPrecondition(
            f"the voice {metadata.get('id', '')!r} was made with a model of {made_for}; this one is of {generation}, "
            "to which its speech tokens mean other sounds: make it again of its recording"
        )
    try:
        voice = Voice(
            metadata["id"],
            tuple(arrays["prompt_text_ids"].tolist()),
            tuple(arrays["prompt_speech_tokens"].tolist()),
            np.ascontiguousarray(arrays["prompt_mel"], "<f4").tobytes(),
            np.ascontiguousarray(arrays["speaker_embedding"], "<f4").tobytes(),
        )
        return StoredVoice(voice, Origin(**{field: metadata[field] for field in Origin.__dataclass_fields__}))
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from error
