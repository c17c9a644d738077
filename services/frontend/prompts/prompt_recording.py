"""A recording to clone, as a caller sends it: the file, its transcript and its language; and the
draft of a stored voice that it becomes.
"""

import secrets
from dataclasses import dataclass, replace

from services.frontend.recordings.decoding import kind_of
from services.frontend.text.language import require_tag
from services.frontend.voices.voice import Voice, digest_of
from services.frontend.voices.voice_notes import Labels, require_given_id, require_length, require_request_id
from services.frontend.voices.voice_store import Origin, StoredVoice, now

LONGEST_TRANSCRIPT = 1000
LONGEST_PROVENANCE = 2000


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
        require_request_id(self.request_id)
        require_length("provenance", self.provenance, LONGEST_PROVENANCE)
        self.recording.require_readable()
        return draft

    def stored(self, voice: Voice) -> StoredVoice:
        """`voice`, which was read from the recording, with its origin."""
        recording = self.recording
        return StoredVoice(
            voice, Origin(recording.transcript, recording.language_code, now(), self.provenance, self.request_id)
        )
