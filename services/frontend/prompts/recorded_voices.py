"""Voices of recordings that come with a request: nothing is stored; an LRU cache serves repeated
recordings.
"""

import asyncio
from dataclasses import dataclass

from cosyserve import telemetry
from services.frontend.prompts.prompt_recording import PromptRecording
from services.frontend.prompts.recording_reader import RecordingReader
from services.frontend.voices.byte_cache import ByteCache
from services.frontend.voices.voice import Voice
from services.frontend.voices.voice_notes import OF_RECORDING

_ID_DIGITS = 16
_RECORDINGS = telemetry.meter.create_counter(
    "cosyserve.frontend.recordings",
    "{request}",
    "Recordings that came with a request, by result: hit (its voice was cached), "
    "shared (it was being read for another), miss (neither)",
)


@dataclass
class _PendingRead:
    """A recording that is being read, and the number of calls that wait for it."""

    task: asyncio.Task[Voice]
    waiting: int = 0


class RecordedVoices:
    """Equal recordings, transcripts and languages give the same voice. It is read once for all
    concurrent calls and held in an LRU cache of `cache_bytes`; 0 disables the cache. Failures are
    not cached. Use inside one event loop.
    """

    def __init__(self, reader: RecordingReader, cache_bytes: int) -> None:
        self._reader = reader
        self._cache: ByteCache[Voice] = ByteCache(cache_bytes)
        self._pending: dict[str, _PendingRead] = {}

    async def voice(self, recording: PromptRecording) -> Voice:
        """The voice of a recording that passed `require_readable`, named by its content.

        A cancelled call ends the work only when no other call waits for it. Raises as
        `RecordingReader.voice` does, and Overloaded when the maximum number of recordings is being
        read.
        """
        # Not in the event loop: the file may have 10 MiB.
        key = await asyncio.to_thread(recording.sha256)
        cached = self._cache.get(key)
        if cached is not None:
            _RECORDINGS.add(1, {"result": "hit"})
            return cached
        reading = self._pending.get(key)
        _RECORDINGS.add(1, {"result": "miss" if reading is None else "shared"})
        if reading is None:
            reading = self._pending[key] = _PendingRead(asyncio.create_task(self._read(key, recording)))
            reading.task.add_done_callback(lambda _: self._forget(key, reading))
        reading.waiting += 1
        try:
            return await asyncio.shield(reading.task)
        finally:
            reading.waiting -= 1
            if reading.waiting == 0 and not reading.task.done():
                # Removed at once: later calls must not wait for a task that is being cancelled.
                self._forget(key, reading)
                reading.task.cancel()

    async def _read(self, key: str, recording: PromptRecording) -> Voice:
        with self._reader.slot():
            voice = await self._reader.voice(f"{OF_RECORDING}{key[:_ID_DIGITS]}", recording)
        self._cache.put(key, voice, voice.bytes_held)
        return voice

    def _forget(self, key: str, reading: _PendingRead) -> None:
        if self._pending.get(key) is reading:
            del self._pending[key]
        if reading.task.done() and not reading.task.cancelled():
            reading.task.exception()  # all callers may have cancelled
