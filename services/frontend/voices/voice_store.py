"""Stored voices that callers created, shared by all replicas.

A voice is three blobs: `content/HASH`, its immutable data in one safetensors file named by the hash
of its bytes; `labels/HASH`, its labels; `names/ID`, the index entry that maps the id to that
content. The name is written last and removed first, and both are atomic: a voice exists completely
or not at all. ID is the id in hexadecimal digits: nothing that a caller wrote is ever part of a
path.
"""

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from cosyserve.errors import AlreadyExists, InternalFault, NotFound
from services.frontend.voices.blobs import TEMPORARY, BlobExists, Blobs
from services.frontend.voices.stored_voice import StoredVoice, file_hash, from_bytes, to_bytes
from services.frontend.voices.voice_notes import UNNAMED_GENERATION, Labels

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """The content of an index entry: enough to list the voice."""

    id: str
    file: str
    """Hash that names its content."""
    content_hash: str
    """Of the arrays (`Voice.content_hash`)."""
    prompt_seconds: float
    language_code: str
    created: str
    request_id: str
    owner: str = ""
    """Tenant whose voice it is; empty: everyone's. Releases before owners cannot read an entry with
    one, rather than give the voice to every caller.
    """

    def to_bytes(self) -> bytes:
        values = asdict(self)
        if not self.owner:
            del values["owner"]
        return json.dumps(values).encode()


class VoiceStore:
    """All calls block on the storage; usable from any thread of any process. Methods raise
    Overloaded when the storage fails, InternalFault when its data is invalid. generation: name of
    that of the model whose voices these are.
    """

    def __init__(self, blobs: Blobs, generation: str = UNNAMED_GENERATION) -> None:
        self._blobs = blobs
        self.generation = generation

    def ids(self) -> list[str]:
        """The ids of all voices, in order."""
        return sorted(filter(None, map(_id_of, self._blobs.names("names"))))

    def entry(self, voice_id: str) -> Entry | None:
        """The index entry of an id, None when there is none."""
        data = self._blobs.read(_name(voice_id))
        return None if data is None else _entry(data, voice_id)

    def entries_with_labels(self, ids: Sequence[str]) -> list[tuple[Entry, Labels]]:
        """The existing ones of `ids` with their labels, in that order."""
        entries = self.entries(ids)
        labels = self._blobs.read_many([f"labels/{entry.file}" for entry in entries])
        return [(entry, _read_labels(labels.get(f"labels/{entry.file}"), entry.id)) for entry in entries]

    def entries(self, ids: Sequence[str]) -> list[Entry]:
        """The existing ones of `ids`, in that order."""
        data = self._blobs.read_many([_name(voice_id) for voice_id in ids])
        return [_entry(data[name], voice_id) for voice_id in ids if (name := _name(voice_id)) in data]

    def content(self, entry: Entry) -> StoredVoice | None:
        """The voice of an entry; None when it was deleted since `entry` was read. Raises
        FailedPrecondition for a voice of another generation.
        """
        data = self._blobs.read(f"content/{entry.file}")
        if data is None:
            if self.entry(entry.id) == entry:
                raise InternalFault(f"the storage has no content for the voice {entry.id!r}")
            return None
        if file_hash(data) != entry.file:
            raise InternalFault(f"the stored content of the voice {entry.id!r} is damaged")
        try:
            return from_bytes(data, self.generation)
        except ValueError as error:
            raise InternalFault(f"the stored content of the voice {entry.id!r} is damaged: {error}") from error

    def add(self, stored: StoredVoice, labels: Labels, owner: str = "") -> Entry:
        """Store a new voice; every replica can use it when this returns. Raises AlreadyExists when
        its id is taken, unless by the same request of the same owner.
        """
        voice, origin = stored.voice, stored.origin
        data = to_bytes(stored, self.generation)
        entry = Entry(
            voice.id,
            file_hash(data),
            voice.content_hash,
            voice.prompt_seconds,
            origin.language_code,
            origin.created,
            origin.request_id,
            owner,
        )
        try:
            self._blobs.put(f"content/{entry.file}", data)
            self._blobs.put(f"labels/{entry.file}", labels.to_bytes())
            self._blobs.put_new(_name(voice.id), entry.to_bytes())
        except BlobExists as error:
            there = self.entry(voice.id)
            if there == entry:
                # A storage client that retries by itself may conflict with its own first attempt.
                return entry
            self._forget(entry.file)
            if there is not None and origin.request_id and _same(there, origin.request_id, owner):
                return there
            raise AlreadyExists(f"there is a voice {voice.id!r} already") from error
        except BaseException:
            # The write may have succeeded although its response was lost. If that cannot be checked
            # either, everything stays for the sweep.
            if self.entry(voice.id) == entry:
                return entry
            self._forget(entry.file)
            raise
        return entry

    def relabel(self, voice_id: str, new: Labels, fields: Collection[str]) -> None:
        """Replace `fields` of the labels, all when none is named. Of several concurrent changes the
        last one wins. Raises NotFound.
        """
        entry = self.entry(voice_id)
        if entry is None:
            raise NotFound(f"there is no voice {voice_id!r}")
        labels = f"labels/{entry.file}"
        self._blobs.put(labels, _read_labels(self._blobs.read(labels), voice_id).changed(new, fields).to_bytes())
        if self.entry(voice_id) != entry:
            # The voice was deleted in the meantime, perhaps before these labels were written.
            self._blobs.delete(labels)
            raise NotFound(f"there is no voice {voice_id!r}")

    def remove(self, voice_id: str) -> None:
        """Delete a voice. Raises NotFound; of several concurrent calls one succeeds, where the
        storage reports which.
        """
        data = self._blobs.take(_name(voice_id))
        if data is None:
            raise NotFound(f"there is no voice {voice_id!r}")
        self._forget(_entry(data, voice_id).file)

    def sweep(self, older_than_seconds: float) -> int:
        """Delete blobs of writers that died which no voice needs; returns their number. A younger
        blob may belong to a voice that is being created.
        """
        # Contents are listed before the names: a name that is written in between then protects its
        # content.
        candidates = [
            (folder, file) for folder in ("content", "labels", TEMPORARY) for file in self._blobs.names(folder)
        ]
        needed = {entry.file for entry, _ in self.entries_with_labels(self.ids())}
        orphans = [f"{folder}/{file}" for folder, file in candidates if file not in needed]
        swept = sum(
            self._blobs.delete(path) for path in orphans if (self._blobs.age_seconds(path) or 0.0) > older_than_seconds
        )
        if swept:
            log.info("the sweep deleted %d blobs that no voice needs", swept)
        return swept

    def _forget(self, file: str) -> None:
        self._blobs.delete(f"labels/{file}")
        self._blobs.delete(f"content/{file}")


def _same(entry: Entry, request_id: str, owner: str) -> bool:
    """Whether a request created the voice of this entry."""
    return entry.request_id == request_id and entry.owner == owner


def _name(voice_id: str) -> str:
    return f"names/{voice_id.encode().hex()}"


def _id_of(name: str) -> str | None:
    try:
        return bytes.fromhex(name).decode()
    except ValueError:
        return None


def _entry(data: bytes, voice_id: str) -> Entry:
    try:
        return Entry(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise InternalFault(f"the stored name of the voice {voice_id!r} is damaged: {error}") from error


def _read_labels(data: bytes | None, voice_id: str) -> Labels:
    try:
        return Labels() if data is None else Labels.from_bytes(data)
    except ValueError as error:
        raise InternalFault(f"the stored labels of the voice {voice_id!r} are damaged: {error}") from error
