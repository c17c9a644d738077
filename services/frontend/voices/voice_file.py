"""A voice as a file: all its data, immutable, in one safetensors file named by the hash of its
bytes.
"""

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cosyserve.spec import MEL_BINS, SPEAKER_DIMENSION
from services.frontend.voices.voice import Voice

_FORMAT = "cosyserve voice 1"


@dataclass(frozen=True)
class Origin:
    """Where a voice comes from. Never changes."""

    transcript: str
    """Transcript of the prompt; empty when it is unknown or only its token ids are known."""
    language_code: str
    """BCP-47 tag, or empty."""
    created: str
    """Creation time: ISO 8601 in UTC, to the microsecond."""
    provenance: str
    """Who gave permission, and the source of the audio."""
    request_id: str
    """Of the call that created it; empty when it had none."""

    @property
    def created_at(self) -> datetime:
        return datetime.fromisoformat(self.created)


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


def to_bytes(stored: StoredVoice) -> bytes:
    """The content of a file. It is different on every call: two creators of the same voice never
    share a file, so neither deletes the other's.
    """
    voice = stored.voice
    arrays = {
        "prompt_text_ids": np.array(voice.prompt_text_ids, "<i4"),
        "prompt_speech_tokens": np.array(voice.prompt_speech_tokens, "<i4"),
        "prompt_mel": np.frombuffer(voice.prompt_mel, "<f4").reshape(-1, MEL_BINS),
        "speaker_embedding": np.frombuffer(voice.speaker_embedding, "<f4").reshape(SPEAKER_DIMENSION),
    }
    return save(arrays, {"format": _FORMAT, "serial": secrets.token_hex(16), "id": voice.id, **asdict(stored.origin)})


def file_hash(data: bytes) -> str:
    """The name of the file: 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def from_bytes(data: bytes) -> StoredVoice:
    """The voice of a file's content. Raises ValueError naming what is invalid."""
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
