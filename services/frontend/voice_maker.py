"""A caller's recording becomes a voice: decode, check, trim, analyse."""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import torch

from cosyserve.errors import InvalidRequest, Overloaded
from services.frontend.analysis import Analyzer
from services.frontend.decoding import decode, kind_of
from services.frontend.language import require_tag
from services.frontend.prompt import PromptReader
from services.frontend.recording import check_recording
from services.frontend.text_tokenizer import Tokenizer
from services.frontend.transcript_pace import require_plausible
from services.frontend.trimming import trimmed
from services.frontend.voice_file import KeptVoice, Origin, now
from services.frontend.voice_labels import Labels, require_given_id, require_request_id
from services.frontend.wav_reader import Sound

LONGEST_TRANSCRIPT, LONGEST_PROVENANCE = 1000, 2000
_RETRY_SECONDS = 2.0


@dataclass(frozen=True)
class Draft:
    """A voice to be made; fields as in VoiceDraft of `voice.proto`."""

    id: str
    audio: bytes
    transcript: str
    language_code: str
    provenance: str
    labels: Labels
    request_id: str

    def checked(self) -> "Draft":
        """With an id, when none was chosen. Raises InvalidRequest for what can be seen without reading the audio."""
        draft = self if self.id else replace(self, id=f"voice-{secrets.token_hex(8)}")
        require_given_id(draft.id)
        require_request_id(self.request_id)
        require_tag(self.language_code)
        for name, text, most in (("transcript", self.transcript, LONGEST_TRANSCRIPT), ("provenance", self.provenance, LONGEST_PROVENANCE)):
            if len(text) > most:
                raise InvalidRequest(f"{name} has {len(text)} characters, allowed at most {most}")
        kind_of(self.audio)
        return draft


class VoiceMaker:
    """Makes voices, at most `most_at_once` under way, analysed one after another in `worker`."""

    def __init__(self, reader: PromptReader, analyzer: Analyzer, tokenizer: Tokenizer, worker: Executor, most_at_once: int) -> None:
        self._reader = reader
        self._analyzer = analyzer
        self._tokenizer = tokenizer
        self._worker = worker
        self._most_at_once = most_at_once
        self._under_way = 0

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place while the block runs. Raises Overloaded when there is none."""
        if self._under_way >= self._most_at_once:
            taken = f"{self._under_way} of {self._most_at_once} voices are being made"
            raise Overloaded(f"{taken}; try again in {_RETRY_SECONDS:g} s", retry_after=_RETRY_SECONDS)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def make(self, draft: Draft) -> KeptVoice:
        """The voice of a checked draft. Raises InvalidRequest for a recording or a transcript that no voice can be made of, InternalFault
        when the analysis fails."""
        sound = await decode(draft.audio)
        return await asyncio.get_running_loop().run_in_executor(self._worker, self.analyse, draft, sound)

    def analyse(self, draft: Draft, sound: Sound) -> KeptVoice:
        """What `make` does once the sound is there; blocks for a fraction of its length."""
        # The whole of it is looked at first, so that what is said of it counts from its beginning.
        check_recording(torch.from_numpy(sound.samples), sound.rate)
        speech = trimmed(sound)
        ids = self._transcript_ids(draft, len(speech.samples) / speech.rate)
        voice = self._reader.read(draft.id, torch.from_numpy(speech.samples), speech.rate, ids)
        return KeptVoice(voice, Origin(draft.transcript, draft.language_code, now(), draft.provenance, draft.request_id))

    def _transcript_ids(self, draft: Draft, seconds: float) -> list[int]:
        if not draft.transcript:
            return []
        text = self._analyzer.normalise(draft.transcript, draft.language_code)
        ids = self._tokenizer.encode(text)
        if not ids:
            raise InvalidRequest("transcript holds nothing that this model can read")
        require_plausible(text, seconds)
        return ids
