"""Keys files: what is written is read, wrong ones are refused by name, and no secret is in them."""

import json
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cosyserve.errors import SettingsError
from cosyserve.keys import key_file
from cosyserve.keys.exposure import is_loopback, require_protected
from cosyserve.keys.key_record import KeyLimits, KeyRecord, record_of
from cosyserve.keys.secret import digest, new_secret

HASH = digest("a secret")
KEY: dict[str, Any] = {"id": "alice", "sha256": HASH}


def test_a_record_is_read_as_it_was_written() -> None:
    full = KeyRecord(
        "alice", HASH, "clinic", 2.5, "batch", KeyLimits(1, 2, 3, 4), datetime(2030, 1, 2, tzinfo=UTC), admin=True
    )
    for record in (full, KeyRecord("bob", HASH)):
        assert record_of(json.loads(json.dumps(record.as_dict()))) == record
    assert record_of(KEY).tenant == "alice"
    assert HASH not in repr(full)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": ""}, "id is ''"),
        ({"id": "a b"}, "id is 'a b'"),
        ({"id": 7}, "id is 7"),
        ({"sha256": "abc"}, "sha256"),
        ({"sha256": HASH.upper()}, "lower case"),
        ({"tenant": "no/slash"}, "tenant"),
        ({"weight": 0}, "weight is 0"),
        ({"weight": True}, "weight is True"),
        ({"weight": float("nan")}, "weight"),
        ({"priority": "urgent"}, "interactive, batch"),
        ({"admin": "yes"}, "admin"),
        ({"expires": "tomorrow"}, "ISO 8601"),
        ({"limits": {"concurent": 1}}, "limits"),
        ({"limits": {"concurrent": 0}}, "limits.concurrent"),
        ({"limits": {"concurrent": 1.5}}, "limits.concurrent"),
        ({"limits": []}, "limits"),
        ({"secret": "x"}, "'secret' is no field"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        record_of({**KEY, **fields})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1"),
        ("[]", "no object of the form"),
        ('{"keys": {}}', "no object of the form"),
        ('{"keys": [], "more": 1}', "no object of the form"),
        ('{"keys": [7]}', r"keys\[0\]: a key is a int"),
        ('{"keys": [{"id": "a"}]}', "sha256 is missing"),
        (json.dumps({"keys": [KEY, {**KEY, "id": "b"}]}), "have the same sha256"),
        (json.dumps({"keys": [KEY, {**KEY, "sha256": digest("b")}]}), "have the same id"),
    ],
)
def test_a_wrong_file_is_refused_and_no_hash_is_quoted(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match=said) as caught:
        key_file.read(path)
    assert str(path) in str(caught.value)
    assert HASH not in str(caught.value)


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        key_file.read(tmp_path / "none")
    monkeypatch.setattr(key_file, "MOST_BYTES", 10)
    (tmp_path / "large").write_text(" " * 11)
    with pytest.raises(SettingsError, match="more than the 10 bytes"):
        key_file.read(tmp_path / "large")


def test_changes_exclude_each_other_and_leave_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"

    def add(number: int) -> None:
        key_file.change(path, lambda records: [*records, KeyRecord(f"key{number}", digest(str(number)))])

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {record.id for record in key_file.read(path)} == {f"key{number}" for number in range(8)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["keys.json", "keys.json.lock"]


def test_a_change_that_fails_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key_file.change(path, lambda _: [KeyRecord("alice", HASH)])
    with pytest.raises(SettingsError, match="same id"):
        key_file.change(path, lambda records: [*records, KeyRecord("alice", digest("b"))])
    assert [record.id for record in key_file.read(path)] == ["alice"]


def test_a_secret_has_256_bits_and_none_is_drawn_twice() -> None:
    drawn = {new_secret() for _ in range(1000)}
    assert len(drawn) == 1000
    assert all(len(each) == 47 and each.startswith("csk-") for each in drawn)


@pytest.mark.parametrize(
    ("address", "alone"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/run/speech", True),
        ("dns:///localhost:1", True),
        ("dns://9.9.9.9/127.0.0.1:1", True),
        ("ipv4:127.0.0.1:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("speech:1", False),
        ("dns:///orchestrator:1", False),
        ("localhost.example:1", False),
        ("127.0.0.1.example:1", False),
    ],
)
def test_what_other_machines_reach(address: str, alone: bool) -> None:
    assert is_loopback(address) == alone
    for keys, insecure in ((True, False), (False, True)):
        require_protected(address, keys=keys, insecure=insecure, ways="")
    if not alone:
        with pytest.raises(ValueError, match=r"without API keys .*; either way"):
            require_protected(address, keys=False, insecure=False, ways="either way")
