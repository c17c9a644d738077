"""The recordings that callers send: what they consist of, how they are read into voices (decoded,
checked, trimmed, put through the prompt networks), and the voices of those that come with a
request, of which nothing is stored; an LRU cache serves repeated ones.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import torch

from cosyserve.errors import InvalidRequest, Overloaded
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.prompts.prompt_reader import PromptReader, ReadSpeech
from services.frontend.prompts.recording_checks import check_recording, require_plausible
from services.frontend.recordings.decoding import decode, kind_of
from services.frontend.recordings.sound import Sound, trim_silence
from services.frontend.text.language import require_tag
from services.frontend.voices.byte_cache import ByteCache, looked_up
from services.frontend.voices.stored_voice import Origin, StoredVoice, now
from services.frontend.voices.system_part import SystemPart
from services.frontend.voices.voice import Voice, cut_of, digest_of
from services.frontend.voices.voice_notes import OF_RECORDING, REQUEST_ID, Labels, require_given_id, require_length

LONGEST_TRANSCRIPT = 1000
LONGEST_PROVENANCE = 2000
_RETRY_SECONDS = 2.0
_ID_DIGITS = 16


@dataclass(frozen=True)
class PromptRecording:
    """Fields as in PromptRecording of `voice.proto`."""

    audio: bytes
    transcript: str = ""
    language_code: str = ""
    cut_prompt: bool = False
    """Leave out the start of the decoder's prompt for an earlier first sound
    (`services.frontend.voices.voice`).
    """

    def require_readable(self) -> None:
        """Raise InvalidRequest for errors that are visible without reading the audio."""
        require_tag(self.language_code)
        require_length("transcript", self.transcript, LONGEST_TRANSCRIPT)
        kind_of(self.audio)

    def sha256(self) -> str:
        """Hexadecimal digest over the fields in order (`digest_of`)."""
        cut = b"cut" if self.cut_prompt else b""
        return digest_of((self.audio, self.transcript.encode(), self.language_code.encode(), cut))


@dataclass(frozen=True)
class Draft:
    """A voice to create; fields as in VoiceDraft of `voice.proto`."""

    id: str
    recording: PromptRecording
    provenance: str
    labels: Labels
    request_id: str

    def checked(self) -> "Draft":
        """Return the draft with an id, generated when none was chosen. Raises InvalidRequest for
        errors that are visible without reading the audio.
        """
        draft = self if self.id else replace(self, id=f"voice-{secrets.token_hex(8)}")
        require_given_id(draft.id)
        if not REQUEST_ID.fullmatch(self.request_id):
            raise InvalidRequest("request_id is not of at most 64 characters out of A-Z a-z 0-9 _ -")
        require_length("provenance", self.provenance, LONGEST_PROVENANCE)
        self.recording.require_readable()
        return draft

    def stored(self, voice: Voice) -> StoredVoice:
        """`voice`, which was read from the recording, with its origin."""
        recording = self.recording
        return StoredVoice(
            voice, Origin(recording.transcript, recording.language_code, now(), self.provenance, self.request_id)
        )


class RecordingReader:
    """Reads at most `most_at_once` recordings concurrently, for any purpose; the networks run on
    one at a time in `worker`. system: of the model; None: one of CosyVoice2.
    """

    def __init__(
        self,
        networks: PromptReader,
        analyzer: Analyzer,
        worker: Executor,
        most_at_once: int,
        system: SystemPart | None = None,
    ) -> None:
        self._system = system
        self._generation = COSYVOICE2 if system is None else system.generation
        self._networks = networks
        self._analyzer = analyzer
        self._worker = worker
        self._most_at_once = most_at_once
        self._under_way = 0

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Reserve a slot while the block runs. Raises Overloaded when there is none."""
        if self._under_way >= self._most_at_once:
            raise Overloaded(
                f"{self._under_way} of {self._most_at_once} recordings are being read; try again in "
                f"{_RETRY_SECONDS:g} s",
                retry_after=_RETRY_SECONDS,
            )
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def voice(self, voice_id: str, recording: PromptRecording) -> Voice:
        """The voice of a recording. Raises InvalidRequest for a recording or a transcript that is
        unsuitable for a voice, Overloaded when the machine is too busy to decode it, InternalFault
        when the analysis fails.
        """
        sound = await decode(recording.audio)
        return await asyncio.get_running_loop().run_in_executor(self._worker, self.analyse, voice_id, recording, sound)

    async def speech_tokens(self, audio: bytes, most_rate: float = 1.0) -> ReadSpeech:
        """The speech tokens of an audio file from its first sample on, including silence.
        most_rate: as in `PromptReader.speech_tokens`. Raises as `voice` does.
        """
        sound = await decode(audio)
        return await asyncio.get_running_loop().run_in_executor(
            self._worker, self._networks.speech_tokens, torch.from_numpy(sound.samples), sound.rate, most_rate
        )

    def analyse(self, voice_id: str, recording: PromptRecording, sound: Sound) -> Voice:
        """The part of `voice` after decoding; blocks for a fraction of the recording's duration."""
        # The check precedes the trimming, so that positions in its messages count from the
        # beginning of the file.
        check_recording(torch.from_numpy(sound.samples), sound.rate)
        speech = trim_silence(sound)
        ids = self._transcript_ids(recording, len(speech.samples) / speech.rate)
        voice = self._networks.read(voice_id, torch.from_numpy(speech.samples), speech.rate, ids)
        if not recording.cut_prompt:
            return voice
        return voice.cut(cut_of(voice.decoder_tokens, self._generation))

    def _transcript_ids(self, recording: PromptRecording, seconds: float) -> list[int]:
        if not recording.transcript:
            return []
        system = self._system
        written = recording.transcript if system is None else system.removed_from(recording.transcript)
        text = self._analyzer.normalise(written, recording.language_code)
        ids = self._analyzer.tokenizer.encode(text)
        if not ids:
            raise InvalidRequest("transcript holds nothing that this model can read")
        require_plausible(text, seconds)
        return ids if system is None else list(system.prefixed(tuple(ids)))


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
            looked_up("recordings", found=True)
            return cached
        reading = self._pending.get(key)
        looked_up("recordings", found=reading is not None)
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
