"""Reads the recordings that callers send: decodes, checks and trims them and runs the prompt
networks.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor

import torch

from cosyserve.errors import InvalidRequest, Overloaded
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.prompts.prompt_reader import PromptReader
from services.frontend.prompts.prompt_recording import PromptRecording
from services.frontend.prompts.recording_checks import check_recording, require_plausible
from services.frontend.recordings.decoding import decode
from services.frontend.recordings.sound import trim_silence
from services.frontend.recordings.wav_reader import Sound
from services.frontend.voices.voice import Voice, cut_of

_RETRY_SECONDS = 2.0


class RecordingReader:
    """Reads at most `most_at_once` recordings concurrently, for any purpose; the networks run on
    one at a time in `worker`.
    """

    def __init__(self, networks: PromptReader, analyzer: Analyzer, worker: Executor, most_at_once: int) -> None:
        self._networks = networks
        self._analyzer = analyzer
        self._worker = worker
        self._most_at_once = most_at_once
        self._under_way = 0

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Reserve a slot while the block runs. Raises Overloaded when there is none."""
        if self._under_way >= self._most_at_once:
            busy = f"{self._under_way} of {self._most_at_once} recordings are being read"
            raise Overloaded(f"{busy}; try again in {_RETRY_SECONDS:g} s", retry_after=_RETRY_SECONDS)
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

    async def speech_tokens(self, audio: bytes) -> tuple[int, ...]:
        """The speech tokens of an audio file: 25 per second from its first sample on, including
        silence. Raises as `voice` does.
        """
        sound = await decode(audio)
        wave = torch.from_numpy(sound.samples)
        return await asyncio.get_running_loop().run_in_executor(
            self._worker, self._networks.speech_tokens, wave, sound.rate
        )

    def analyse(self, voice_id: str, recording: PromptRecording, sound: Sound) -> Voice:
        """The part of `voice` after decoding; blocks for a fraction of the recording's duration."""
        # The check precedes the trimming, so that positions in its messages count from the
        # beginning of the file.
        check_recording(torch.from_numpy(sound.samples), sound.rate)
        speech = trim_silence(sound)
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
