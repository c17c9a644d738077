"""Recordings of requests: read once, cached within bytes, shared by concurrent calls, cancelled
with the last of them.
"""

import asyncio
from collections import Counter

import pytest

from cosyserve.errors import InvalidRequest, Overloaded
from services.frontend.prompts import recording_reader
from services.frontend.prompts.recording_reader import PromptRecording, RecordedVoices, RecordingReader
from services.frontend.voices.voice import Voice
from tests.unit.frontend.models import until


class Reader(RecordingReader):
    """Counts slots like the real reader; reads when it is released, and takes a configurable time
    to cancel.
    """

    def __init__(self, most_at_once: int = 2) -> None:
        super().__init__(None, None, None, most_at_once)  # type: ignore[arg-type]
        self.begun: list[bytes] = []
        self.ended: list[bytes] = []
        self.go, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()
        self.fault: Exception | None = None

    async def voice(self, voice_id: str, recording: PromptRecording) -> Voice:
        self.begun.append(recording.audio)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            await self.may_end.wait()
            self.ended.append(recording.audio)
            if self.fault is not None:
                raise self.fault from None
            raise
        if self.fault is not None:
            raise self.fault
        return Voice(voice_id, (), (1,) * 10, bytes(10 * 2 * 80 * 4), bytes(192 * 4))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    results: Counter[str] = Counter()

    def looked_up(cache: str, *, found: bool) -> None:
        assert cache == "recordings"
        results["hit" if found else "miss"] += 1

    monkeypatch.setattr(recording_reader, "looked_up", looked_up)
    return results


def reading(most_at_once: int = 2, *, released: bool = False) -> tuple[Reader, RecordedVoices]:
    """A reader, released or not, and voices with room in their cache."""
    reader = Reader(most_at_once)
    if released:
        reader.go.set()
    return reader, RecordedVoices(reader, 1 << 20)


def ask(voices: RecordedVoices, audio: bytes = b"a", transcript: str = "", language: str = "") -> "asyncio.Task[Voice]":
    return asyncio.create_task(voices.voice(PromptRecording(audio, transcript, language)))


async def test_what_was_read_is_read_no_more(counted: Counter[str]) -> None:
    reader, voices = reading(released=True)
    first = await ask(voices)
    assert [await ask(voices) for _ in range(4)] == [first] * 4
    assert (reader.begun, counted) == ([b"a"], {"miss": 1, "hit": 4})
    assert first.id == f"recording-{PromptRecording(b'a').sha256()[:16]}"
    assert reader._under_way == 0


async def test_another_file_transcript_or_language_is_another_recording() -> None:
    reader, voices = reading(released=True)
    prompts = [("ab", "c", ""), ("a", "bc", ""), ("a", "b", "c"), ("ab", "", "c"), ("a", "b", "")]
    ids = [(await ask(voices, audio.encode(), transcript, language)).id for audio, transcript, language in prompts * 2]
    assert len(set(ids)) == len(prompts) == len(reader.begun)


def chosen_cache(voices: int) -> int:
    return voices * Voice("v", (), (1,) * 10, bytes(10 * 2 * 80 * 4), bytes(192 * 4)).bytes_held


@pytest.mark.parametrize(("room", "read_again"), [(3, [b"1"]), (0, [b"0", b"1", b"2", b"3"])])
async def test_memory_is_bounded_by_bytes(room: int, read_again: list[bytes]) -> None:
    reader = Reader()
    reader.go.set()
    voices = RecordedVoices(reader, chosen_cache(room))
    for audio in (b"0", b"1", b"2", b"0", b"3"):
        await ask(voices, audio)
    reader.begun.clear()
    for audio in (b"0", b"2", b"3", b"1"):
        await ask(voices, audio)
    assert sorted(reader.begun) == read_again
    assert voices._cache.bytes_held <= chosen_cache(room)


async def test_a_call_during_the_cancellation_starts_a_new_read() -> None:
    reader, voices = reading()
    lost = ask(voices)
    await until(lambda: reader.begun)
    reader.may_end.clear()
    lost.cancel()
    new = ask(voices)
    await until(lambda: len(reader.begun) == 2)
    assert lost.cancelled()
    reader.may_end.set()
    await until(lambda: reader.ended)
    joined = ask(voices)
    await asyncio.sleep(0.05)
    reader.go.set()
    assert await new is await joined
    assert (len(reader.begun), len(voices._cache), reader._under_way) == (2, 1, 0)


async def test_a_refusal_reaches_all_callers_and_is_not_cached(counted: Counter[str]) -> None:
    reader, voices = reading()
    reader.fault = InvalidRequest("the recording is silent")
    asks = [ask(voices) for _ in range(3)]
    await until(lambda: counted.total() == 3)
    reader.go.set()
    for each in asks:
        with pytest.raises(InvalidRequest, match="is silent"):
            await each
    assert not voices._pending
    reader.fault = None
    await ask(voices)
    assert (reader.begun, counted) == ([b"a", b"a"], {"miss": 2, "hit": 2})


async def test_a_failure_without_waiting_callers_is_not_reported_by_the_event_loop() -> None:
    reader, voices = reading()
    asked = ask(voices)
    await until(lambda: reader.begun)
    reader.fault = InvalidRequest("too late")
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await until(lambda: reader.ended)
    assert not voices._pending


async def test_only_a_reading_takes_a_place(counted: Counter[str]) -> None:
    reader, voices = reading(most_at_once=1, released=True)
    await ask(voices, b"cached")
    reader.go.clear()
    first, second = ask(voices), ask(voices)
    await until(lambda: reader._under_way == 1 and counted.total() == 3)
    assert (await ask(voices, b"cached")).id
    with pytest.raises(Overloaded, match="1 of 1 recordings are being read; try again in 2 s") as caught:
        await ask(voices, b"other")
    assert caught.value.retry_after == 2.0
    reader.go.set()
    assert await first == await second
    assert (await ask(voices, b"other")).id


def test_a_voice_knows_about_how_much_memory_it_takes() -> None:
    sizes = [Voice("v", (), (1,) * count, bytes(count * 2 * 80 * 4), bytes(192 * 4)).bytes_held for count in (0, 750)]
    assert 700 < sizes[0] < 2_000
    assert 480_000 < sizes[1] < 600_000
