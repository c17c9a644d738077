"""Presets and stored voices together: the look-ups and their number, and when a deletion is
visible.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cosyserve.errors import AlreadyExists, FailedPrecondition, InvalidRequest, NotFound, Overloaded
from services.frontend.voices.blobs import Blobs, DirectoryBlobs
from services.frontend.voices.byte_cache import ByteCache
from services.frontend.voices.preset_voices import PresetVoices
from services.frontend.voices.voice import Voice
from services.frontend.voices.voice_library import VoiceLibrary
from services.frontend.voices.voice_limits import VoiceLimits
from services.frontend.voices.voice_notes import Labels, require_given_id
from services.frontend.voices.voice_store import VoiceStore
from tests.unit.frontend.voices.test_voice_store import stored_voice

PRESETS = PresetVoices([Voice(name, (), (), b"", bytes(4 * 192)) for name in ("bob", "preset")])


class Counting(DirectoryBlobs):
    """Counts reads, and can delay them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: Counter[str] = Counter()
        self.seconds = 0.0

    def read(self, name: str) -> bytes | None:
        self.reads[name.partition("/")[0]] += 1
        time.sleep(self.seconds)
        return super().read(name)


@pytest.fixture
def io() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def blobs(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


def library(blobs: Blobs | None, io: ThreadPoolExecutor, fresh: float = 60.0, **options: Any) -> VoiceLibrary:
    return VoiceLibrary(PRESETS, None if blobs is None else VoiceStore(blobs), io, fresh_seconds=fresh, **options)


@pytest.mark.parametrize(("fresh", "names_read"), [(60.0, 0), (0.0, 50)])
async def test_a_voice_is_read_once_and_its_name_when_it_is_no_longer_fresh(
    blobs: Counting, io: ThreadPoolExecutor, fresh: float, names_read: int
) -> None:
    await library(blobs, io).add(stored_voice("me"), Labels())
    other = library(blobs, io, fresh)
    first = await other.voice("me")
    blobs.reads.clear()
    for _ in range(50):
        assert await other.voice("me") == first
        await other.voice("preset")
        await other.voice("")
    assert blobs.reads == Counter(names=names_read)


async def test_concurrent_calls_read_once_and_a_cancelled_one_ends_nothing(
    blobs: Counting, io: ThreadPoolExecutor
) -> None:
    VoiceStore(blobs).add(stored_voice("me"), Labels())
    asking = library(blobs, io)
    blobs.reads.clear()
    blobs.seconds = 0.1
    asks = [asyncio.create_task(asking.voice("me")) for _ in range(20)]
    await asyncio.sleep(0.02)
    asks[0].cancel()
    answers = await asyncio.gather(*asks, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert all(isinstance(answer, Voice) for answer in answers[1:])
    assert blobs.reads == {"names": 1, "content": 1}


async def test_what_one_replica_makes_another_finds_at_once_and_forgets_when_it_is_deleted(
    blobs: Counting, io: ThreadPoolExecutor
) -> None:
    one, two = library(blobs, io, fresh=0.2), library(blobs, io, fresh=0.2)
    with pytest.raises(NotFound):
        await two.voice("me")
    await one.add(stored_voice("me"), Labels())
    assert (await two.voice("me")).id == "me"
    await one.voice("me")
    await one.remove("me")
    with pytest.raises(NotFound, match="no voice 'me'; ListVoices"):
        await one.voice("me")
    assert [line.id for line in (await two.page(10, ""))[0]] == ["bob", "preset"]
    with pytest.raises(NotFound):
        await two.details("me")
    await asyncio.sleep(0.25)
    with pytest.raises(NotFound):
        await two.voice("me")


async def test_a_voice_that_is_created_again_is_the_new_one(blobs: Counting, io: ThreadPoolExecutor) -> None:
    one, two = library(blobs, io, fresh=0.0), library(blobs, io, fresh=0.0)
    await one.add(stored_voice("me", 0.1), Labels())
    old = await two.voice("me")
    await one.remove("me")
    await one.add(stored_voice("me", 0.2), Labels())
    assert (await two.voice("me")).content_hash != old.content_hash


async def test_memory_is_bounded_by_bytes(blobs: Counting, io: ThreadPoolExecutor) -> None:
    small = library(blobs, io, cache_bytes=3 * stored_voice("v0").bytes_held)
    for number in range(6):
        await small.add(stored_voice(f"v{number}"), Labels())
        await small.voice(f"v{number}")
    blobs.reads.clear()
    await small.voice("v5")
    assert not blobs.reads
    await small.voice("v0")
    assert blobs.reads["content"] == 1


def test_the_cache_drops_what_was_used_longest_ago() -> None:
    cache: ByteCache[str] = ByteCache(10)
    for key in "abc":
        cache.put(key, key, 3)
    assert cache.get("a") == "a"
    cache.put("d", "d", 4)
    assert [cache.get(key) for key in "abcd"] == ["a", None, "c", "d"]
    cache.put("a", "A", 1)
    assert (cache.bytes_held, cache.get("a")) == (8, "A")
    cache.put("huge", "x", 11)
    assert cache.get("huge") is None
    cache.drop("a")
    cache.drop("a")
    assert (cache.bytes_held, len(cache)) == (7, 2)


async def test_pages_hold_every_voice_once_and_in_order(blobs: Counting, io: ThreadPoolExecutor) -> None:
    asking = library(blobs, io)
    for name in ("z", "amy", "Bob", "carl"):
        await asking.add(stored_voice(name), Labels(name.upper()))
    result, after = [], ""
    while True:
        lines, after = await asking.page(2, after)
        result += lines
        if not after:
            break
    assert [line.id for line in result] == ["Bob", "amy", "bob", "carl", "preset", "z"]
    assert [line.is_preset for line in result] == [False, False, True, False, True, False]
    assert result[-1].labels == Labels("Z")
    assert [line.id for line in result if line.is_default] == ["bob"]
    assert await asking.page(6, "zz") == ([], "")


async def test_presets_are_neither_replaced_nor_changed_nor_deleted(blobs: Counting, io: ThreadPoolExecutor) -> None:
    asking = library(blobs, io)
    with pytest.raises(AlreadyExists, match="comes with the model"):
        await asking.require_room("bob", "")
    for change in (asking.remove("bob"), asking.relabel("bob", Labels(), ())):
        with pytest.raises(FailedPrecondition, match="comes with the model"):
            await change


async def test_the_limit_is_checked_before_work_is_spent(blobs: Counting, io: ThreadPoolExecutor) -> None:
    asking = library(blobs, io, limits=VoiceLimits(2))
    assert await asking.require_room("a", "") is None
    await asking.add(stored_voice("a", request_id="r"), Labels("A"))
    with pytest.raises(AlreadyExists):
        await asking.require_room("a", "")
    assert (await asking.require_room("a", "r")).summary.labels == Labels("A")
    await asking.add(stored_voice("b"), Labels())
    with pytest.raises(Overloaded, match="there are 2 voices, allowed are 2"):
        await asking.require_room("c", "")
    with pytest.raises(InvalidRequest, match="expected 1 to 64 characters"):
        await asking.require_room("../etc/passwd", "")


async def test_one_tenant_does_not_take_the_room_of_the_others(blobs: Counting, io: ThreadPoolExecutor) -> None:
    asking = library(blobs, io, limits=VoiceLimits(5, 2))
    await asking.add(stored_voice("a"), Labels(), "green")
    blobs.reads.clear()
    await asking.require_room("c", "", "green")
    assert blobs.reads == Counter(names=1), "that of c; of one voice no tenant has two"
    await asking.add(stored_voice("b", request_id="r"), Labels(), "green")
    with pytest.raises(
        Overloaded, match="this tenant has at least 2 voices, allowed are 2; delete some first"
    ) as error:
        await asking.require_room("c", "", "green")
    assert error.value.retry_after is None, "no time makes room"
    assert (await asking.require_room("b", "r", "green")).summary.id == "b"
    for other in ("blue", ""):
        await asking.require_room("c", "", other)
    for number in range(3):
        await asking.add(stored_voice(f"of-all-{number}"), Labels())
    for owner in ("blue", ""):
        with pytest.raises(Overloaded, match="there are 5 voices, allowed are 5"):
            await asking.require_room("c", "", owner)
    await asking.remove("a", "green")
    await asking.require_room("c", "", "green")


async def test_without_a_storage_there_are_only_presets(io: ThreadPoolExecutor) -> None:
    alone = library(None, io)
    assert [line.id for line in (await alone.page(10, ""))[0]] == ["bob", "preset"]
    with pytest.raises(NotFound, match="known: bob, preset"):
        await alone.voice("me")
    with pytest.raises(FailedPrecondition, match="COSYSERVE_FRONTEND_VOICES_URL is not set"):
        await alone.require_room("me", "")
    with pytest.raises(NotFound):
        await alone.remove("me")


@pytest.mark.parametrize("voice_id", ["../x", "a/b", ".", "a" * 65, "\x00", "é"])
async def test_an_id_that_cannot_be_given_is_not_looked_for(
    blobs: Counting, io: ThreadPoolExecutor, voice_id: str
) -> None:
    asking = library(blobs, io)
    for asked in (asking.voice(voice_id), asking.details(voice_id), asking.remove(voice_id)):
        with pytest.raises(NotFound):
            await asked
    assert not blobs.reads


async def test_the_default_may_be_a_stored_voice(blobs: Counting, io: ThreadPoolExecutor) -> None:
    asking = VoiceLibrary(PRESETS, VoiceStore(blobs), io, default="me")
    with pytest.raises(NotFound):
        await asking.voice("")
    await asking.add(stored_voice("me"), Labels())
    assert (await asking.voice("")).id == "me"
    assert [line.is_default for line in (await asking.page(10, ""))[0]] == [False, True, False]


@pytest.mark.parametrize("voice_id", ["recording-0123456789abcdef", "recording-0", "recording-ABC"])
def test_an_id_of_a_recording_cannot_be_given_to_a_voice(voice_id: str) -> None:
    with pytest.raises(InvalidRequest, match="hexadecimal digits are reserved for recordings"):
        require_given_id(voice_id)
    for allowed in ("recording-", "recording-of-me", "my-recording-0"):
        require_given_id(allowed)


async def test_a_damaged_voice_counts_for_no_tenant(blobs: Counting, io: ThreadPoolExecutor) -> None:
    asking = library(blobs, io, limits=VoiceLimits(9, 2))
    for name in ("a", "b"):
        await asking.add(stored_voice(name), Labels(), "green")
    blobs.put(f"names/{blobs.names('names')[0].rpartition('/')[2]}", b"[1]")
    await asking.require_room("c", "", "blue")
    await asking.require_room("c", "", "green")
