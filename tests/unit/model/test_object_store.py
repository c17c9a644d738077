"""Model files from an object store: fsspec's own, in memory and on the disk."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from cosyserve.errors import ModelError
from tests.unit.model.file_server import write_catalogue
from tests.unit.model.steps import ended
from tools.model import download
from tools.model.fetch.object_store import ObjectStore
from tools.model.fetch.wanted_files import RECORD, SizeAndHash, WantedFile

WEIGHTS = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
WANTED = (WantedFile("nested/llm.pt", "a test", 1000, optional=False, unless=None, size=None, sha256=None),)
PINS = {"nested/llm.pt": SizeAndHash(len(WEIGHTS), SHA256)}


@pytest.fixture
def bucket() -> Iterator[fsspec.AbstractFileSystem]:
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/model/nested/llm.pt", WEIGHTS)
    yield memory
    memory.rm("/bucket", recursive=True)


def record(files: dict[str, tuple[int, str]]) -> bytes:
    entries = {name: {"bytes": size, "sha256": sha256} for name, (size, sha256) in files.items()}
    return json.dumps({"source": "a test", "files": entries}).encode()


@pytest.mark.usefixtures("bucket")
def test_files_come_whole_and_are_what_the_pins_say(tmp_path: Path) -> None:
    seen: list[int] = []
    store = ObjectStore("memory://bucket/model")
    assert store.known() == {}
    assert download.fetch_all(tmp_path, store, WANTED, PINS) == PINS
    assert (tmp_path / "nested" / "llm.pt").read_bytes() == WEIGHTS
    store.fetch("nested/llm.pt", tmp_path / "again", SizeAndHash(), seen.append)
    assert sum(seen) == len(WEIGHTS)


def test_the_record_of_a_store_says_what_files_have_to_be(bucket: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    store = ObjectStore("memory://bucket/model/")
    bucket.pipe(f"/bucket/model/{RECORD}", record({"nested/llm.pt": (len(WEIGHTS), "0" * 64)}))
    with pytest.raises(ModelError, match=r"expected are .* sha256 0000"):
        download.fetch_all(tmp_path, store, WANTED, {})
    assert not [path for path in tmp_path.rglob("*llm.pt*") if path.is_file()]
    bucket.pipe(f"/bucket/model/{RECORD}", b"<html>")
    with pytest.raises(ModelError, match="no record of a download"):
        store.known()


@pytest.mark.usefixtures("bucket")
def test_what_is_longer_than_it_should_be_does_not_fill_the_disk(tmp_path: Path) -> None:
    store = ObjectStore("memory://bucket/model")
    with pytest.raises(ModelError, match="more than the 100 bytes"):
        store.fetch("nested/llm.pt", tmp_path / "llm.pt", SizeAndHash(100), lambda _: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("bucket")
def test_a_missing_file_and_an_unknown_store_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"memory://bucket/model/flow\.pt: no such file there"):
        ObjectStore("memory://bucket/model").fetch("flow.pt", tmp_path / "flow.pt", SizeAndHash(), lambda _: None)
    with pytest.raises(ModelError, match="nowhere://bucket"):
        ObjectStore("nowhere://bucket/model")


def test_the_command_takes_a_store_and_pins(tmp_path: Path) -> None:
    files = {"llm.pt": WEIGHTS, "cosyvoice2.yaml": b"sample_rate: 24000\n"}
    mirror, catalogue, pins = tmp_path / "mirror", tmp_path / "catalogue.toml", tmp_path / "pins.json"
    mirror.mkdir()
    for name, data in files.items():
        (mirror / name).write_bytes(data)
    pins.write_bytes(record({name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}))
    write_catalogue(catalogue, *files)
    options = ("--catalogue", str(catalogue), "--mirror", mirror.as_uri(), "--pins", str(pins))
    status, _, errors = ended("download", str(tmp_path / "model"), *options)
    assert status == 0, errors
    assert (tmp_path / "model" / "llm.pt").read_bytes() == WEIGHTS
    (mirror / "llm.pt").write_bytes(WEIGHTS[::-1])
    status, _, errors = ended("download", str(tmp_path / "other"), *options)
    assert status == 1
    assert "llm.pt" in errors
    assert SHA256 in errors
