"""What is known of a voice beside its arrays, as one more field of an entry of `spk2info.pt`.

The layouts of the original programs have no place for it, and those programs pass over a field that
they do not know. The field is `cosyserve`: a mapping of texts (`transcript`, `language_code`,
`created`, `provenance`, `display_name`, `description`), `labels`, itself a mapping of texts, and
`prompt_text_ids`, an int32 tensor, since a transcript as it was written need not give the ids that
it was read as.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from cosyserve.errors import InvalidRequest
from services.frontend.text.language import require_tag
from services.frontend.voices.voice_labels import Labels

FIELD = "cosyserve"
_TEXTS = {
    "transcript": 1000,
    "language_code": 64,
    "created": 64,
    "provenance": 2000,
    "display_name": 128,
    "description": 1000,
}
"""Name of each text and how many characters it may have at most."""


@dataclass(frozen=True)
class Notes:
    """What is known of a voice beside its arrays; each text is empty where it is not known."""

    transcript: str = ""
    """What is said in the prompt, as it was written."""
    language_code: str = ""
    """BCP-47 tag."""
    created: str = ""
    """When the voice was made: ISO 8601 with its zone."""
    provenance: str = ""
    """Who allowed it and where the audio is from."""
    labels: Labels = field(default_factory=Labels)

    def imported(self, created: str, provenance: str) -> "Notes":
        """With these where the notes do not say when the voice was made; notes that do say all that
        was known, also an empty provenance.
        """
        return self if self.created else replace(self, created=created, provenance=self.provenance or provenance)


def notes_field(notes: Notes, prompt_text_ids: tuple[int, ...] = ()) -> dict[str, Any]:
    """The field's value, of plain texts and, where there are some, the ids of the transcript."""
    texts = {name: getattr(notes.labels if name in ("display_name", "description") else notes, name) for name in _TEXTS}
    ids = {"prompt_text_ids": torch.tensor(prompt_text_ids, dtype=torch.int32)} if prompt_text_ids else {}
    return texts | {"labels": dict(notes.labels.labels)} | ids


def notes_of(entry: Mapping[str, Any]) -> Notes:
    """The notes of an entry, empty ones where it has none. Raises ValueError naming what is not as
    `notes_field` makes it.
    """
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
    """The same moment as protobuf's Timestamp reads it, in UTC. Raises ValueError."""
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
    """The ids that `transcript`, the text of the layout itself, was read as; None when the notes
    are of another text or have none.
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
