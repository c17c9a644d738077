"""Which key a secret is: every entry is compared, whatever is given; and a file that changes."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from cosyserve.errors import SettingsError
from cosyserve.keys import key_file
from cosyserve.keys.key_record import KeyRecord
from cosyserve.keys.secret import digest, new_secret
from services.orchestrator.access import key_ring
from services.orchestrator.access.key_ring import KeyRing, WatchedKeys

SECRETS = [new_secret() for _ in range(20)]
RECORDS = [KeyRecord(f"key{number}", digest(secret)) for number, secret in enumerate(SECRETS)]


def test_each_secret_finds_its_own_key() -> None:
    ring = KeyRing(RECORDS)
    assert [ring.find(secret) for secret in SECRETS] == RECORDS
    for wrong in ("", new_secret(), SECRETS[0][:-1], RECORDS[0].sha256, SECRETS[0] + " ", "\ud800", "ä"):
        assert ring.find(wrong) is None
    assert KeyRing([]).find(SECRETS[0]) is None


def test_every_entry_is_compared_whatever_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same work for a right key, wherever it is, and for a wrong one."""
    compared = []
    compare = key_ring.equal_rows

    def counting(digests: key_ring.Digests, one: key_ring.Digests) -> Any:
        compared.append((digests.shape, one.shape))
        return compare(digests, one)

    monkeypatch.setattr(key_ring, "equal_rows", counting)
    ring = KeyRing(RECORDS)
    for secret in (SECRETS[0], SECRETS[-1], new_secret(), ""):
        compared.clear()
        ring.find(secret)
        assert compared == [((len(RECORDS), 4), (1, 4))]


def test_there_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ring, "MOST_KEYS", 19)
    with pytest.raises(SettingsError, match="20 keys, allowed are at most 19"):
        KeyRing(RECORDS)


async def test_a_changed_file_is_read_and_a_broken_one_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    path = tmp_path / "keys.json"
    key_file.change(path, lambda _: RECORDS[:1])
    watched = WatchedKeys(path, lambda: now[0])

    async def known() -> list[str]:
        now[0] += key_ring.LOOK_SECONDS
        ring = await watched.ring()
        return [record.id for secret in SECRETS if (record := ring.find(secret))]

    assert await known() == ["key0"]
    key_file.change(path, lambda _: RECORDS[:2])
    assert [record.id for record in [(await watched.ring()).find(SECRETS[1])] if record] == []
    assert await known() == ["key0", "key1"]
    caplog.set_level(logging.ERROR)
    for broken in ("{", json.dumps({"keys": [{"id": "x", "sha256": "short"}]}), None):
        caplog.clear()
        if broken is None:
            path.unlink()
        else:
            path.write_text(broken)
        for _ in range(3):
            assert await known() == ["key0", "key1"]
        (record,) = caplog.records
        assert "stay as they were" in record.getMessage()
        assert not any(each.sha256 in record.getMessage() for each in RECORDS)
    key_file.change(path, lambda _: RECORDS[2:3])
    assert await known() == ["key2"]


async def test_calls_at_once_look_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [0.0], []
    path = tmp_path / "keys.json"
    key_file.change(path, lambda _: RECORDS[:1])
    watched = WatchedKeys(path, lambda: now[0])
    reading = watched._read_if_changed
    monkeypatch.setattr(watched, "_read_if_changed", lambda: (looks.append(1), reading())[1])
    now[0] += 2
    await asyncio.gather(*(watched.ring() for _ in range(50)))
    assert len(looks) == 1


def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        WatchedKeys(tmp_path / "keys.json")
