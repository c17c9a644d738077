"""Stored voices: complete or absent with any number of writers, and no blobs left over."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from cosyserve.errors import AlreadyExists, InternalFault, InvalidRequest, NotFound, Overloaded
from services.frontend.voices.blobs import BlobExists, Blobs, open_blobs
from services.frontend.voices.stored_voice import Origin, StoredVoice, file_hash, from_bytes, now, to_bytes
from services.frontend.voices.voice import Voice
from services.frontend.voices.voice_notes import Labels
from services.frontend.voices.voice_store import VoiceStore

ROOT = Path(__file__).parents[4]


def stored_voice(voice_id: str, value: float = 0.5, request_id: str = "") -> StoredVoice:
    mel = np.full((20, 80), value, "<f4").tobytes()
    voice = Voice(voice_id, (1, 2), tuple(range(10)), mel, np.full(192, value, "<f4").tobytes())
    return StoredVoice(voice, Origin("what was said", "en-GB", now(), "she agreed", request_id))


def read_back(store: VoiceStore, voice_id: str) -> StoredVoice:
    """The content of a voice that is stored."""
    stored = store.content(store.entry(voice_id))
    assert stored is not None
    return stored


@pytest.fixture(params=["directory", "object store"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Blobs]:
    if request.param == "directory":
        yield open_blobs(str(tmp_path / "voices"), "model")
        return
    fsspec.filesystem("memory").store.clear()
    yield open_blobs("memory://voices", "model")


@pytest.fixture
def store(blobs: Blobs) -> VoiceStore:
    return VoiceStore(blobs)


def left(blobs: Blobs) -> list[str]:
    return [f"{folder}/{name}" for folder in ("names", "content", "labels", "aside") for name in blobs.names(folder)]


def test_what_is_stored_is_what_is_read(store: VoiceStore) -> None:
    created = stored_voice("anna.b-1")
    entry = store.add(created, Labels("Anna", "warm", {"team": "a"}))
    assert (store.content(entry), store.entry("anna.b-1")) == (created, entry)
    assert (entry.prompt_seconds, entry.language_code, entry.content_hash) == (0.4, "en-GB", created.voice.content_hash)
    assert store.entries_with_labels(["x", "anna.b-1"]) == [(entry, Labels("Anna", "warm", {"team": "a"}))]
    assert store.ids() == ["anna.b-1"]


def test_an_entry_has_an_owner_only_where_there_is_one(store: VoiceStore, blobs: Blobs) -> None:
    """A release before owners reads the one, and gives no caller the other."""
    for name, owner in (("plain", ""), ("owned", "clinic")):
        store.add(stored_voice(name), Labels(), owner)
        data = blobs.read(f"names/{name.encode().hex()}")
        assert data is not None
        assert json.loads(data).get("owner") == (owner or None)
        entry = store.entry(name)
        assert entry is not None
        assert entry.owner == owner


def test_a_request_of_another_owner_does_not_get_the_voice(store: VoiceStore) -> None:
    made = store.add(stored_voice("anna", request_id="r"), Labels(), "clinic")
    assert store.add(stored_voice("anna", request_id="r"), Labels(), "clinic") == made
    with pytest.raises(AlreadyExists):
        store.add(stored_voice("anna", request_id="r"), Labels(), "bank")


def test_a_speaker_vector_alone_is_stored_too(store: VoiceStore) -> None:
    alone = StoredVoice(Voice("v", (), (), b"", bytes(4 * 192)), Origin("", "", now(), "", ""))
    assert store.content(store.add(alone, Labels())) == alone


def test_the_content_is_named_by_its_hash_and_the_id_is_no_part_of_a_path(blobs: Blobs) -> None:
    entry = VoiceStore(blobs).add(stored_voice("me"), Labels())
    assert left(blobs) == [f"names/{b'me'.hex()}", f"content/{entry.file}", f"labels/{entry.file}"]
    assert file_hash(blobs.read(f"content/{entry.file}") or b"") == entry.file


def test_an_id_is_given_once(blobs: Blobs, store: VoiceStore) -> None:
    first = store.add(stored_voice("me", 0.1), Labels())
    with pytest.raises(AlreadyExists, match="there is a voice 'me' already"):
        store.add(stored_voice("me", 0.2), Labels())
    assert store.entry("me") == first
    assert len(left(blobs)) == 3
    store.remove("me")
    assert left(blobs) == []
    with pytest.raises(NotFound):
        store.remove("me")
    assert store.add(stored_voice("me", 0.2), Labels()).content_hash != first.content_hash


def test_a_request_that_comes_twice_is_carried_out_once(blobs: Blobs, store: VoiceStore) -> None:
    first = store.add(stored_voice("me", request_id="r1"), Labels())
    assert store.add(stored_voice("me", request_id="r1"), Labels()) == first
    with pytest.raises(AlreadyExists):
        store.add(stored_voice("me", request_id="r2"), Labels())
    assert len(left(blobs)) == 3


def test_the_same_content_under_two_names_is_two_voices(store: VoiceStore) -> None:
    created = stored_voice("a")
    one, two = store.add(created, Labels()), store.add(replace(created, voice=replace(created.voice, id="b")), Labels())
    assert one.content_hash == two.content_hash
    store.remove("a")
    assert read_back(store, "b").voice.prompt_mel == created.voice.prompt_mel


def test_labels_change_and_the_content_does_not(blobs: Blobs, store: VoiceStore) -> None:
    entry = store.add(stored_voice("me"), Labels("One", "first", {"a": "1"}))
    content = blobs.read(f"content/{entry.file}")
    store.relabel("me", Labels("Two", "", {}), ("display_name",))
    assert store.entries_with_labels(["me"]) == [(entry, Labels("Two", "first", {"a": "1"}))]
    store.relabel("me", Labels("", "third", {}), ())
    assert store.entries_with_labels(["me"]) == [(entry, Labels("", "third", {}))]
    assert blobs.read(f"content/{entry.file}") == content
    with pytest.raises(InvalidRequest, match="update_mask names 'id'"):
        store.relabel("me", Labels(), ("id",))
    with pytest.raises(NotFound):
        store.relabel("you", Labels(), ())


def test_labels_of_a_voice_that_is_deleted_meanwhile_do_not_stay(
    blobs: Blobs, store: VoiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(stored_voice("me"), Labels())
    put = blobs.put

    def deleted_first(name: str, data: bytes) -> None:
        store.remove("me")
        put(name, data)

    monkeypatch.setattr(blobs, "put", deleted_first)
    with pytest.raises(NotFound):
        store.relabel("me", Labels("Late"), ())
    assert left(blobs) == []


def test_of_many_that_want_an_id_one_gets_it(tmp_path: Path) -> None:
    """As threads, each with its own storage, like separate processes."""
    gate = threading.Barrier(8)

    def want(number: int) -> str:
        own = VoiceStore(open_blobs(str(tmp_path), "model"))
        won = 0
        for turn in range(10):
            gate.wait()
            try:
                own.add(stored_voice(f"voice{turn}", number), Labels())
                won += 1
            except AlreadyExists:
                pass
        return f"{won}"

    with ThreadPoolExecutor(8) as pool:
        assert sum(map(int, pool.map(want, range(8)))) == 10
    blobs = open_blobs(str(tmp_path), "model")
    assert len(left(blobs)) == 30
    assert VoiceStore(blobs).sweep(-1.0) == 0


def test_of_many_that_delete_one_does(tmp_path: Path) -> None:
    stores = [VoiceStore(open_blobs(str(tmp_path), "model")) for _ in range(6)]
    for _ in range(10):
        stores[0].add(stored_voice("me"), Labels())
        gate = threading.Barrier(6)

        def remove(store: VoiceStore, gate: threading.Barrier = gate) -> int:
            gate.wait()
            try:
                store.remove("me")
            except NotFound:
                return 0
            return 1

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(remove, stores)) == 1
    assert left(open_blobs(str(tmp_path), "model")) == []


@pytest.mark.parametrize("failing", ["content", "labels", "names"])
def test_a_write_that_fails_leaves_nothing(blobs: Blobs, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("put", "put_new"):
        true = getattr(blobs, method)

        def put(name: str, data: bytes, true: Callable[[str, bytes], None] = true) -> None:
            if name.startswith(failing):
                raise Overloaded("the disk is full")
            true(name, data)

        monkeypatch.setattr(blobs, method, put)
    store = VoiceStore(blobs)
    with pytest.raises(Overloaded, match="full"):
        store.add(stored_voice("me"), Labels())
    assert (store.ids(), left(blobs)) == ([], [])


@pytest.mark.parametrize("error", [Overloaded("the connection is gone"), BlobExists("names/ab")])
def test_a_yes_that_was_lost_is_a_yes(blobs: Blobs, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a storage client retries by itself."""
    put_new = blobs.put_new

    def lost(name: str, data: bytes) -> None:
        put_new(name, data)
        raise error

    monkeypatch.setattr(blobs, "put_new", lost)
    store = VoiceStore(blobs)
    assert store.content(store.add(stored_voice("me"), Labels())) is not None


def test_a_disk_that_fails_in_mid_write_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blobs = open_blobs(str(tmp_path), "model")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Overloaded, match=r"could not write it; try again in 1 s") as caught:
        VoiceStore(blobs).add(stored_voice("me"), Labels())
    assert "content/" not in caught.value.message
    assert str(tmp_path) not in caught.value.message
    assert "could not write content/" in caplog.text
    assert "No space left" in caplog.text
    assert left(blobs) == []


WRITER = """
import sys
from tests.unit.frontend.voices.test_voice_store import stored_voice
from services.frontend.voices.blobs import open_blobs
from services.frontend.voices.voice_notes import Labels
from services.frontend.voices.voice_store import VoiceStore
store = VoiceStore(open_blobs(sys.argv[1], "model"))
print("ready", flush=True)
number = 0
while True:
    store.add(stored_voice(f"v{number % 7}"), Labels("x"))
    store.relabel(f"v{number % 7}", Labels("y"), ())
    store.remove(f"v{number % 7}")
    number += 1
"""


def test_a_writer_that_is_killed_leaves_no_half_voice(tmp_path: Path) -> None:
    """Killed at a random point, eight times."""
    blobs = open_blobs(str(tmp_path), "model")
    store = VoiceStore(blobs)
    for turn in range(8):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
        assert writer.stdout.readline()
        time.sleep(0.02 + 0.013 * turn)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        for voice_id in store.ids():
            read_back(store, voice_id)
            store.remove(voice_id)
    store.sweep(-1.0)
    assert left(blobs) == []


def test_the_sweep_deletes_what_no_voice_needs_and_is_old(blobs: Blobs, store: VoiceStore) -> None:
    store.add(stored_voice("me"), Labels())
    blobs.put("content/" + "a" * 64, b"left by a dead writer")
    blobs.put("labels/" + "b" * 64, b"left by a dead writer")
    assert (store.sweep(3600.0), store.sweep(-1.0), len(left(blobs))) == (0, 2, 3)
    assert store.entries_with_labels(["me"])


@pytest.mark.parametrize(
    ("place", "damage", "said"),
    [
        ("content", lambda data: data[:-1] + b"x", "is damaged$"),
        ("content", lambda data: data[:100], "is damaged$"),
        ("names", lambda data: data[:10], "name of the voice 'me' is damaged"),
        ("names", lambda data: b"[1]", "name of the voice 'me' is damaged"),
        ("labels", lambda data: b"{}}", "labels of the voice 'me' are damaged"),
        ("labels", lambda data: b'{"size": 1}', "labels of the voice 'me' are damaged"),
    ],
)
def test_damage_is_reported_and_not_used(
    blobs: Blobs, store: VoiceStore, place: str, damage: Callable[[bytes], bytes], said: str
) -> None:
    entry = store.add(stored_voice("me"), Labels())
    name = f"names/{b'me'.hex()}" if place == "names" else f"{place}/{entry.file}"
    blobs.put(name, damage(blobs.read(name) or b""))
    with pytest.raises(InternalFault, match=said):  # noqa: PT012
        read_back(store, "me")
        store.entries_with_labels(["me"])


def test_content_that_is_gone_while_its_name_is_there_is_a_fault(blobs: Blobs, store: VoiceStore) -> None:
    entry = store.add(stored_voice("me"), Labels())
    blobs.delete(f"content/{entry.file}")
    with pytest.raises(InternalFault, match="no content"):
        store.content(entry)
    store.remove("me")
    assert store.content(entry) is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a safetensors"),
        (b"x" * 100, "not a safetensors"),
        (to_bytes(stored_voice("a")).replace(b"voice 1", b"voice 2"), "format is"),
    ],
)
def test_a_file_of_another_kind(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_bytes(data)


def test_storages_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nonsense:// cannot be opened"):
        open_blobs("nonsense://bucket", "model")
    (tmp_path / "file").write_text("")
    with pytest.raises(Overloaded, match="could not list it"):
        VoiceStore(open_blobs(str(tmp_path / "file"), "model")).ids()


def test_put_new_of_an_object_store_asks_for_a_conditional_put() -> None:
    asked: dict[str, Any] = {}

    class Filesystem:
        def pipe_file(self, path: str, data: bytes, **options: Any) -> None:
            asked.update(path=path, **options)
            raise FileExistsError(path)

    with pytest.raises(BlobExists):
        Blobs(Filesystem(), "bucket/prefix").put_new("names/ab", b"x")
    assert asked == {"path": "bucket/prefix/names/ab", "mode": "create"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"display_name": "n" * 129}, "display_name has 129 characters, allowed at most 128"),
        ({"display_name": "a\nb"}, "display_name holds a control character"),
        ({"description": "d" * 1001}, "description has 1001 characters"),
        ({"labels": {str(number): "" for number in range(33)}}, "labels has 33 entries, allowed at most 32"),
        ({"labels": {"a b": ""}}, "has the key 'a b'"),
        ({"labels": {"": ""}}, "has the key ''"),
        ({"labels": {"a": "v" * 257}}, "has 257 characters, allowed at most 256"),
    ],
)
def test_labels_that_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Labels(**values)
