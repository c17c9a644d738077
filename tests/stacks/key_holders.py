"""Keys for tests, and callers that present them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cosyserve.keys.key_record import KeyRecord, record_of
from cosyserve.keys.secret import digest, metadata_of, new_secret


@dataclass(frozen=True)
class KeyHolder:
    """A caller with its key."""

    secret: str
    record: KeyRecord

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple(metadata_of(self.secret))

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}"}


def key_holder(name: str, **fields: Any) -> KeyHolder:
    """A new key of this id. fields: as in a keys file."""
    secret = new_secret()
    return KeyHolder(secret, record_of({"id": name, "sha256": digest(secret), **fields}))


def keys_of(holders: Iterable[KeyHolder]) -> str:
    """The content of a keys file: also the setting KEYS."""
    return json.dumps({"keys": [holder.record.as_dict() for holder in holders]})
