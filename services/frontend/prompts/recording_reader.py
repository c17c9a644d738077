"""Recordings that callers send are read: decoded, checked, trimmed, listened to."""

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor

import torch

from cosyserve.errors import InvalidRequest, Overloaded
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.prompts.prompt_reader import PromptReader
from services.frontend.prompts.prompt_recording import PromptRecording
from services.frontend.prompts.transcript_pace import require_plausible
from services.frontend.recordings.decoding import decode
from services.frontend.recordings.recording_checks import check_recording
from services.frontend.recordings.trimming import trimmed
from services.frontend.recordings.wav_reader import Sound
from services.frontend.voices.prompt_cut import cut_of
from services.frontend.voices.voice import Voice

_RETRY_SECONDS = 2.0


class RecordingReader:
    """Reads recordings, at most `most_at_once` under way whatever they are for, listened to one
    after another in `worker`.
    """

    def __init__(self, networks: PromptReader, analyzer: Analyzer, worker: Executor, most_at_once: int) -> None:
        self._networks = networks
        self._analyzer = analyzer
        self._worker = worker
        self._most_at_once = most_at_once
        self._under_way = 0

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place while the block runs. Raises Overloaded when there is none."""
        if self._under_way >= self._most_at_once:
            taken = f"{self._under_way} of {self._most_at_once} recordings are being read"
            raise Overloaded(f"{taken}; try again in {_RETRY_SECONDS:g} s", retry_after=_RETRY_SECONDS)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def voice(self, voice_id: str, recording: PromptRecording) -> Voice:
        """The voice of a recording. Raises InvalidRequest for a recording or a transcript that no
        voice can be made of, Overloaded when the machine is too busy to decode it, InternalFault
        when the analysis fails."""
        sound = await decode(recording.audio)
        return await asyncio.get_running_loop().run_in_executor(self._worker, self.analyse, voice_id, recording, sound)

    async def speech_tokens(self, audio: bytes) -> tuple[int, ...]:
        """What is said in a sound file: 25 tokens a second, from its first sample on, silence and
        all. Raises as `voice` does.
        """
        sound = await decode(audio)
        wave = torch.from_numpy(sound.samples)
        return await asyncio.get_running_loop().run_in_executor(
            self._worker, self._networks.speech_tokens, wave, sound.rate
        )

    def analyse(self, voice_id: str, recording: PromptRecording, sound: Sound) -> Voice:
        """What `voice` does once the sound is there; blocks for a fraction of its length."""
        # The whole of it is looked at first, so that what is said of it counts from its beginning.
        check_recording(torch.from_numpy(sound.samples), sound.rate)
        speech = trimmed(sound)
        ids = self._transcript_ids(recording, len(speech.samples) / speech.rate)
        voice = self._networks.read(voice_id, torch.from_numpy(speech.samples), speech.rate, ids)
        return voice.cut(cut_of(voice.decoder_tokens)) if recording.cut_prompt else voice

    def _transcript_ids(self, recording: PromptRecording, seconds: float) -> list[int]:
        if not recording.transcript:
            return []
        text = self._analyzer.normalise(recording.transcript, recording.language_code)
        ids = self._analyzer.tokenizer.encode(text)
        if not ids:
            raise InvalidRequest("transcript holds nothing that this model can read")
        require_plausible(text, seconds)
        return ids
