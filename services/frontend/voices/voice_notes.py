"""The id, the labels and the notes of a voice.

Callers choose the id and the labels. The notes are one additional field of an entry of
`spk2info.pt`. The layouts of the original programs have no place for them, and those programs
ignore unknown fields. The field is `cosyserve`: a mapping of texts (`transcript`, `language_code`,
`created`, `provenance`, `display_name`, `description`, and where it has one `owner` and
`generation`), `labels`, itself a mapping of texts, and `prompt_text_ids`, an int32 tensor, since
encoding the written transcript need not give the ids that were stored.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from cosyserve.errors import InvalidRequest
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from services.frontend.text.language import require_tag

LONGEST_GIVEN_ID = 64
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
OF_RECORDING = "recording-"
"""Prefix, followed by hexadecimal digits, of the ids of recordings that came with a request
(`prompts.recording_reader`).
"""
_OF_RECORDING = re.compile(rf"{OF_RECORDING}[0-9a-fA-F]+")
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{0,64}")
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
        require_length("metadata.display_name", self.display_name, _LONGEST_NAME)
        if _CONTROL.search(self.display_name):
            raise InvalidRequest("metadata.display_name holds a control character")
        require_length("metadata.description", self.description, _LONGEST_DESCRIPTION)
        if len(self.labels) > _MOST_LABELS:
            raise InvalidRequest(f"metadata.labels has {len(self.labels)} entries, allowed at most {_MOST_LABELS}")
        for key, value in self.labels.items():
            if not _KEY.fullmatch(key):
                raise InvalidRequest(
                    f"metadata.labels has the key {key[:64]!r}; keys are 1 to 64 characters out of A-Z a-z 0-9 _ . -"
                )
            require_length(f"metadata.labels[{key!r}]", value, _LONGEST_LABEL)

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
        raise InvalidRequest(
            f"id is {voice_id[:LONGEST_GIVEN_ID]!r} ({len(voice_id)} characters), expected 1 to {LONGEST_GIVEN_ID} "
            "characters out of A-Z a-z 0-9 _ . - and the first none of . and -"
        )


def require_length(name: str, text: str, most: int) -> None:
    """Raise InvalidRequest naming the field when `text` has more than `most` characters."""
    if len(text) > most:
        raise InvalidRequest(f"{name} has {len(text)} characters, allowed at most {most}")


FIELD = "cosyserve"
UNNAMED_GENERATION = COSYVOICE2.name
"""Generation of the model of a voice that names none: earlier releases knew no other."""
_UNLESS_EMPTY = ("owner", "generation")
"""Releases before these read the other texts."""
_TEXTS = {
    "transcript": 1000,
    "language_code": 64,
    "created": 64,
    "provenance": 2000,
    "display_name": 128,
    "description": 1000,
    "owner": 128,
    "generation": 64,
}
"""Maximum number of characters of each text."""


@dataclass(frozen=True)
class Background:
    """What is known of a voice besides its content; each text is empty when it is unknown."""

    transcript: str = ""
    """Transcript of the prompt, as it was written."""
    language_code: str = ""
    """BCP-47 tag."""
    created: str = ""
    """Creation time: ISO 8601 with its zone."""
    provenance: str = ""
    """Who gave permission, and the source of the audio."""


@dataclass(frozen=True)
class Notes(Background):
    """The notes on a voice."""

    labels: Labels = field(default_factory=Labels)
    owner: str = ""
    """Tenant whose voice it is; empty: everyone's."""
    generation: str = ""
    """Name of the generation whose model made the voice; empty: `UNNAMED_GENERATION`."""

    def imported(self, created: str, provenance: str) -> "Notes":
        """These notes, with the given values where they lack a creation time; notes with one are
        complete, even with an empty provenance.
        """
        return self if self.created else replace(self, created=created, provenance=self.provenance or provenance)


def notes_field(notes: Notes, prompt_text_ids: tuple[int, ...] = ()) -> dict[str, Any]:
    """The value of the field: plain texts and, where known, the ids of the transcript."""
    texts = {name: getattr(notes.labels if name in ("display_name", "description") else notes, name) for name in _TEXTS}
    for name in _UNLESS_EMPTY:
        if not texts[name]:
            del texts[name]
    ids = {"prompt_text_ids": torch.tensor(prompt_text_ids, dtype=torch.int32)} if prompt_text_ids else {}
    return texts | {"labels": dict(notes.labels.labels)} | ids


def notes_of(entry: Mapping[str, Any]) -> Notes:
    """The notes of an entry, empty when it has none. Raises ValueError naming an invalid value."""
    value = entry.get(FIELD)
    if value is None:
        return Notes()
    if not isinstance(value, dict):
        raise ValueError(f"field {FIELD} is a {type(value).__name__}, expected a mapping")
    if unknown := [name for name in value if name not in (*_TEXTS, "labels", "prompt_text_ids")]:
        raise ValueError(f"field {FIELD} holds {str(unknown[0])[:64]!r}, which this release does not know")
    texts = {name: _text(value, name, most) for name, most in _TEXTS.items()}
    labels = value.get("labels", {})
    if not isinstance(labels, dict) or not all(isinstance(text, str) for pair in labels.items() for text in pair):
        raise ValueError(f"field {FIELD}: labels is no mapping of texts")
    try:
        require_tag(texts["language_code"])
        named = Labels(texts.pop("display_name"), texts.pop("description"), labels)
    except InvalidRequest as error:
        raise ValueError(f"field {FIELD}: {error.message}") from error
    if texts["created"]:
        texts["created"] = _moment(texts["created"])
    return Notes(**texts, labels=named)


def _moment(created: str) -> str:
    """The same time in UTC, in the format of protobuf's Timestamp. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(created)
        if moment.tzinfo is None:
            raise ValueError(f"field {FIELD}: created is {created!r}, a time without its zone")
        in_utc = moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"field {FIELD}: created is {created!r}, a year outside 1 to 9999") from error
    except ValueError as error:
        raise (
            error
            if str(error).startswith("field ")
            else ValueError(f"field {FIELD}: created is {created!r}, no time of ISO 8601")
        ) from error
    return in_utc.isoformat(timespec="microseconds")


def noted_text_ids(entry: Mapping[str, Any], transcript: str) -> Tensor | None:
    """The stored ids of `transcript`, the text of the layout itself; None when the notes belong to
    another text or have no ids.
    """
    value = entry.get(FIELD)
    if not isinstance(value, dict) or value.get("transcript") != transcript:
        return None
    ids = value.get("prompt_text_ids")
    if ids is not None and not isinstance(ids, Tensor):
        raise ValueError(f"field {FIELD}: prompt_text_ids is a {type(ids).__name__}, expected an int32 tensor")
    return ids


def _text(value: Mapping[str, Any], name: str, most: int) -> str:
    text = value.get(name, "")
    if not isinstance(text, str):
        raise ValueError(f"field {FIELD}: {name} is a {type(text).__name__}, expected a text")
    if len(text) > most:
        raise ValueError(f"field {FIELD}: {name} has {len(text)} characters, allowed at most {most}")
    return text
