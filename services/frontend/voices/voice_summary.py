"""What is known of a voice besides its content: an entry of the list, and the details of one."""

from dataclasses import dataclass

from services.frontend.voices.voice import Voice
from services.frontend.voices.voice_notes import Labels


@dataclass(frozen=True)
class VoiceSummary:
    """A voice in the list of voices."""

    id: str
    content_hash: str
    prompt_seconds: float
    is_default: bool
    labels: Labels
    language_code: str
    created: str
    """ISO 8601; empty when unknown."""
    is_preset: bool
    owner: str = ""
    """Tenant whose voice it is; empty: everyone's."""


@dataclass(frozen=True)
class Details:
    """A list entry with the details that are only returned for a single voice."""

    summary: VoiceSummary
    voice: Voice
    transcript: str
    provenance: str
