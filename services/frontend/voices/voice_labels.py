"""The labels and the id of a voice: what callers choose."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace

from cosyserve.errors import InvalidRequest

LONGEST_GIVEN_ID = 64
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
OF_RECORDING = "recording-"
"""Prefix, followed by hexadecimal digits, of the ids of recordings that came with a request
(`recorded_voices`).
"""
_OF_RECORDING = re.compile(rf"{OF_RECORDING}[0-9a-fA-F]+")
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{0,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONGEST_NAME, _LONGEST_DESCRIPTION, _MOST_LABELS, _LONGEST_LABEL = 128, 1000, 32, 256
CHANGEABLE = ("display_name", "description", "labels")


@dataclass(frozen=True)
class Labels:
    """The changeable part of a voice. Raises InvalidRequest naming an invalid field (`voice.proto`,
    VoiceMetadata).
    """

    display_name: str = ""
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_length("metadata.display_name", self.display_name, _LONGEST_NAME)
        if _CONTROL.search(self.display_name):
            raise InvalidRequest("metadata.display_name holds a control character")
        _require_length("metadata.description", self.description, _LONGEST_DESCRIPTION)
        if len(self.labels) > _MOST_LABELS:
            raise InvalidRequest(f"metadata.labels has {len(self.labels)} entries, allowed at most {_MOST_LABELS}")
        for key, value in self.labels.items():
            if not _KEY.fullmatch(key):
                raise InvalidRequest(
                    f"metadata.labels has the key {key[:64]!r}; keys are 1 to 64 characters out of A-Z a-z 0-9 _ . -"
                )
            _require_length(f"metadata.labels[{key!r}]", value, _LONGEST_LABEL)

    def changed(self, new: "Labels", fields: Collection[str]) -> "Labels":
        """These labels with `fields` of `new`, all of them when none is named. Raises
        InvalidRequest for an unknown field.
        """
        for name in fields:
            if name not in CHANGEABLE:
                raise InvalidRequest(
                    f"update_mask names {name[:64]!r}, which cannot be changed; expected some of "
                    f"{', '.join(CHANGEABLE)}"
                )
        return replace(self, **{name: getattr(new, name) for name in fields or CHANGEABLE})

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Labels":
        """Inverse of `to_bytes`. Raises ValueError for other data."""
        try:
            return cls(**json.loads(data))
        except (TypeError, InvalidRequest) as error:
            raise ValueError(str(error)) from error


def is_given_id(voice_id: str) -> bool:
    """Whether an id has the form that callers may choose."""
    return bool(_ID.fullmatch(voice_id))


def require_given_id(voice_id: str) -> None:
    """Raise InvalidRequest unless a caller may choose this id for a new voice."""
    if _OF_RECORDING.fullmatch(voice_id):
        raise InvalidRequest(
            f"id is {voice_id!r}; ids of {OF_RECORDING} and hexadecimal digits are reserved for recordings of a request"
        )
    if not is_given_id(voice_id):
        form = f"1 to {LONGEST_GIVEN_ID} characters out of A-Z a-z 0-9 _ . - and the first none of . and -"
        raise InvalidRequest(f"id is {voice_id[:LONGEST_GIVEN_ID]!r} ({len(voice_id)} characters), expected {form}")


def require_request_id(request_id: str) -> None:
    """Raise InvalidRequest unless it is at most 64 characters out of A-Z a-z 0-9 _ -."""
    if not _REQUEST_ID.fullmatch(request_id):
        raise InvalidRequest("request_id is not of at most 64 characters out of A-Z a-z 0-9 _ -")


def _require_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InvalidRequest(f"{name} has {len(text)} characters, allowed at most {most}")
