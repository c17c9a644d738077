"""All voices of this replica: the presets of the model directory and the stored ones that callers
created.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from cosyserve.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidRequest,
    NotFound,
    PermissionDenied,
)
from services.frontend.voices.byte_cache import ByteCache, looked_up
from services.frontend.voices.preset_voices import PresetVoices
from services.frontend.voices.stored_voice import StoredVoice
from services.frontend.voices.voice import LONGEST_ID, Details, Voice, VoiceSummary
from services.frontend.voices.voice_limits import VoiceLimits
from services.frontend.voices.voice_notes import Labels, Notes, is_given_id, require_given_id
from services.frontend.voices.voice_store import Entry, VoiceStore

MOST_ENTRIES = 10_000
"""Cached index entries, about 500 bytes each."""
_READ_AT_ONCE = 1_000
T = TypeVar("T")


class VoiceLibrary:
    """Presets are in memory and take precedence over a stored voice of the same id. Stored voices
    are looked up in the store: their content, which never changes, is cached within `cache_bytes`;
    their index entries, which do, for `fresh_seconds`. So a voice that another replica created is
    available at once, and one that another replica deleted is dropped after that time.

    tenant, of the methods: only its voices and those of everyone are there; None: all are. A tenant
    changes its own voices alone.

    io: runs everything that blocks on the storage. Use inside one event loop. Without a store there
    are only presets.
    """

    def __init__(
        self,
        presets: PresetVoices,
        store: VoiceStore | None,
        io: Executor,
        *,
        default: str | None = None,
        cache_bytes: int = 1 << 26,
        fresh_seconds: float = 1.0,
        limits: VoiceLimits | None = None,
        notes: Mapping[str, Notes] | None = None,
    ) -> None:
        """notes: notes on the presets, by id."""
        self._presets = presets
        self._notes = notes or {}
        self._store = store
        self._io = io
        self.default = default or presets.default
        """The id that an empty one selects; None when there is none."""
        self._contents: ByteCache[StoredVoice] = ByteCache(cache_bytes)
        self._fresh_seconds = fresh_seconds
        self._limits = limits or VoiceLimits()
        self._entries: OrderedDict[str, tuple[Entry, float]] = OrderedDict()
        self._pending: dict[str, asyncio.Task[tuple[Entry, StoredVoice]]] = {}
        self._removals = 0

    async def voice(self, voice_id: str, tenant: str | None = None) -> Voice:
        """The voice of that id, or the default one for an empty id. Raises InvalidRequest for an id
        over 128 characters, NotFound.
        """
        preset = self._preset(voice_id)
        return preset if preset is not None else (await self._visible(voice_id, tenant))[1].voice

    async def details(self, voice_id: str, tenant: str | None = None) -> Details:
        """The details of a voice. Raises as `voice` does."""
        preset = self._preset(voice_id)
        if preset is not None:
            notes = self._notes.get(preset.id, Notes())
            return Details(self._preset_summary(preset), preset, notes.transcript, notes.provenance)
        entry, stored = await self._visible(voice_id, tenant)
        entries = await self._work(lambda store: store.entries_with_labels([entry.id]))
        if not entries:
            raise self._not_found(entry.id)
        return Details(
            self._summary(entry, entries[0][1]), stored.voice, stored.origin.transcript, stored.origin.provenance
        )

    async def page(self, size: int, after: str, tenant: str | None = None) -> tuple[list[VoiceSummary], str]:
        """At most `size` voices after the id `after`, in order, and the id of the last one when
        there are more.
        """
        presets = {voice.id: voice for voice in self._presets.all()}
        stored = await self._work(lambda store: store.ids()) if self._store else []
        ahead = sorted(voice_id for voice_id in {*presets, *stored} if voice_id > after)
        if tenant is None:
            return await self._summaries(ahead[:size], presets), ahead[size - 1] if len(ahead) > size else ""
        # The token of the next page must not name a voice of another tenant.
        found = list[VoiceSummary]()
        for first in range(0, len(ahead), _READ_AT_ONCE):
            some = await self._summaries(ahead[first : first + _READ_AT_ONCE], presets)
            found += [one for one in some if one.owner in ("", tenant)]
            if len(found) > size:
                return found[:size], found[size - 1].id
        return found, ""

    async def _summaries(self, ids: Sequence[str], presets: Mapping[str, Voice]) -> list[VoiceSummary]:
        """Of the voices that exist, in this order."""
        stored_ids = [voice_id for voice_id in ids if voice_id not in presets]
        summaries = (
            {
                entry.id: self._summary(entry, labels)
                for entry, labels in await self._work(lambda store: store.entries_with_labels(stored_ids))
            }
            if stored_ids
            else {}
        )
        summaries |= {voice_id: self._preset_summary(presets[voice_id]) for voice_id in ids if voice_id in presets}
        return [summaries[voice_id] for voice_id in ids if voice_id in summaries]

    async def require_room(self, voice_id: str, request_id: str, owner: str = "") -> Details | None:
        """Check, before work is spent on it, that a new voice can be stored. Returns the voice that
        the same request of the same owner created earlier, or None.

        Raises InvalidRequest for an id that callers may not choose, FailedPrecondition without a
        store, AlreadyExists, and Overloaded as `VoiceLimits.require_room`.
        """
        store = self._require_store()
        require_given_id(voice_id)
        if self._presets.has(voice_id):
            raise AlreadyExists(f"there is a voice {voice_id!r} already, which comes with the model")
        there = await self._work(lambda _: store.entry(voice_id))
        if there is not None:
            if request_id and (there.request_id, there.owner) == (request_id, owner):
                return await self.details(voice_id)
            raise AlreadyExists(f"there is a voice {voice_id!r} already")
        await self._work(lambda store: self._limits.require_room(store, owner))
        return None

    async def add(self, stored: StoredVoice, labels: Labels, owner: str = "") -> Details:
        """Store a new voice of this tenant; empty: of everyone. Raises AlreadyExists when its id
        has been taken in the meantime.
        """
        self._require_store()
        entry = await self._work(lambda store: store.add(stored, labels, owner))
        if entry.created != stored.origin.created:
            return await self.details(entry.id)
        return Details(self._summary(entry, labels), stored.voice, stored.origin.transcript, stored.origin.provenance)

    async def relabel(self, voice_id: str, new: Labels, fields: Collection[str], tenant: str | None = None) -> Details:
        """Change the labels of a voice. Raises InvalidRequest, NotFound, FailedPrecondition for a
        preset, and PermissionDenied for a tenant that changes a voice of everyone.
        """
        await self._require_changeable(voice_id, tenant)
        await self._work(lambda store: store.relabel(voice_id, new, fields))
        return await self.details(voice_id)

    async def remove(self, voice_id: str, tenant: str | None = None) -> None:
        """Delete a voice; this replica drops it at once. Raises as `relabel` does."""
        await self._require_changeable(voice_id, tenant)
        self._forget(voice_id)
        try:
            await self._work(lambda store: store.remove(voice_id))
        finally:
            self._forget(voice_id)

    async def sweep(self, older_than_seconds: float) -> None:
        """Delete blobs that no voice needs (see VoiceStore.sweep)."""
        if self._store is not None:
            await self._work(lambda store: store.sweep(older_than_seconds))

    def _preset(self, voice_id: str) -> Voice | None:
        wanted = voice_id or self.default or ""
        if self._presets.has(wanted) or self._store is None or not is_given_id(wanted):
            # Where it is no preset, this raises an error that lists the existing names.
            return self._presets.get(wanted)
        return None

    async def _visible(self, voice_id: str, tenant: str | None) -> tuple[Entry, StoredVoice]:
        """A stored voice, if it is there for the tenant; raises NotFound."""
        entry, stored = await self._stored(voice_id or self.default or "")
        if not _is_visible(entry, tenant):
            raise self._not_found(entry.id)
        return entry, stored

    async def _stored(self, voice_id: str) -> tuple[Entry, StoredVoice]:
        entry, until = self._entries.get(voice_id, (None, 0.0))
        if entry is not None and time.monotonic() < until and (stored := self._contents.get(entry.file)) is not None:
            looked_up("voices", found=True)
            return entry, stored
        task = self._pending.get(voice_id)
        if task is not None:
            looked_up("voices", found=True)
        else:
            # One look-up serves all concurrent calls; a cancelled call does not end it for the
            # others.
            task = self._pending[voice_id] = asyncio.create_task(self._look_up(voice_id))
            task.add_done_callback(lambda done: self._looked_up(voice_id, done))
        return await asyncio.shield(task)

    async def _look_up(self, voice_id: str) -> tuple[Entry, StoredVoice]:
        removals = self._removals

        def read(store: VoiceStore) -> tuple[Entry, StoredVoice] | None:
            while (entry := store.entry(voice_id)) is not None:
                cached = self._contents.get(entry.file)
                looked_up("voices", found=cached is not None)
                stored = cached or store.content(entry)
                if stored is not None:
                    return entry, stored
            return None

        until = time.monotonic() + self._fresh_seconds
        result = await self._work(read)
        if result is None:
            self._entries.pop(voice_id, None)
            raise self._not_found(voice_id)
        entry, stored = result
        if removals == self._removals:
            self._contents.put(entry.file, stored, stored.bytes_held)
            self._entries[voice_id] = (entry, until)
            self._entries.move_to_end(voice_id)
            while len(self._entries) > MOST_ENTRIES:
                self._entries.popitem(last=False)
        return result

    def _looked_up(self, voice_id: str, task: asyncio.Task[tuple[Entry, StoredVoice]]) -> None:
        if self._pending.get(voice_id) is task:
            del self._pending[voice_id]
        if not task.cancelled():
            task.exception()  # all callers may have cancelled

    def _forget(self, voice_id: str) -> None:
        self._removals += 1
        self._pending.pop(voice_id, None)
        entry, _ = self._entries.pop(voice_id, (None, 0.0))
        if entry is not None:
            self._contents.drop(entry.file)

    def _summary(self, entry: Entry, labels: Labels) -> VoiceSummary:
        return VoiceSummary(
            entry.id,
            entry.content_hash,
            entry.prompt_seconds,
            entry.id == self.default,
            labels,
            entry.language_code,
            entry.created,
            is_preset=False,
            owner=entry.owner,
        )

    def _preset_summary(self, voice: Voice) -> VoiceSummary:
        notes = self._notes.get(voice.id, Notes())
        return VoiceSummary(
            voice.id,
            voice.content_hash,
            voice.prompt_seconds,
            voice.id == self.default,
            notes.labels,
            notes.language_code,
            notes.created,
            is_preset=True,
        )

    def _not_found(self, voice_id: str) -> NotFound:
        return NotFound(f"there is no voice {voice_id!r}; ListVoices returns the existing ones")

    def _require_store(self) -> VoiceStore:
        if self._store is None:
            raise FailedPrecondition("this server stores no voices: COSYSERVE_FRONTEND_VOICES_URL is not set")
        return self._store

    async def _require_changeable(self, voice_id: str, tenant: str | None) -> None:
        if not 1 <= len(voice_id) <= LONGEST_ID:
            raise InvalidRequest(f"the voice id has {len(voice_id)} characters, allowed 1 to {LONGEST_ID}")
        if self._presets.has(voice_id):
            raise FailedPrecondition(f"the voice {voice_id!r} comes with the model and is neither changed nor deleted")
        if self._store is None or not is_given_id(voice_id):
            raise self._not_found(voice_id)
        if tenant is None:
            return
        entry = await self._work(lambda store: store.entry(voice_id))
        if entry is None or not _is_visible(entry, tenant):
            raise self._not_found(voice_id)
        if not entry.owner:
            raise PermissionDenied(f"the voice {voice_id!r} belongs to everyone; a key of an admin can change it")

    async def _work(self, function: Callable[[VoiceStore], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._io, function, self._require_store())


def _is_visible(entry: Entry, tenant: str | None) -> bool:
    """Whether a voice is there for the tenant."""
    return tenant is None or entry.owner in ("", tenant)
