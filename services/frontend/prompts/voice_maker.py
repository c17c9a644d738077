"""Creates a stored voice from a caller's recording."""

import secrets
from dataclasses import dataclass, replace

from services.frontend.prompts.prompt_recording import PromptRecording, require_length
from services.frontend.prompts.recording_reader import RecordingReader
from services.frontend.voices.voice_notes import Labels, require_given_id, require_request_id
from services.frontend.voices.voice_store import Origin, StoredVoice, now

LONGEST_PROVENANCE = 2000


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
        require_request_id(self.request_id)
        require_length("provenance", self.provenance, LONGEST_PROVENANCE)
        self.recording.require_readable()
        return draft


async def make_voice(draft: Draft, reader: RecordingReader) -> StoredVoice:
    """Create the voice of a checked draft. Raises as `RecordingReader.voice` does."""
    voice = await reader.voice(draft.id, draft.recording)
    recording = draft.recording
    return StoredVoice(
        voice, Origin(recording.transcript, recording.language_code, now(), draft.provenance, draft.request_id)
    )
