"""A recording to clone, as a caller sends it: the file, its transcript and its language."""

import hashlib
import struct
from dataclasses import dataclass

from cosyserve.errors import InvalidRequest
from services.frontend.recordings.decoding import kind_of
from services.frontend.text.language import require_tag

LONGEST_TRANSCRIPT = 1000


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
        """Hexadecimal digest over the fields in order, each as its length in bytes (uint64,
        little-endian) and its content.
        """
        digest = hashlib.sha256()
        for part in (
            self.audio,
            self.transcript.encode(),
            self.language_code.encode(),
            b"cut" if self.cut_prompt else b"",
        ):
            digest.update(struct.pack("<Q", len(part)))
            digest.update(part)
        return digest.hexdigest()


def require_length(name: str, text: str, most: int) -> None:
    """Raise InvalidRequest naming the field when `text` has more than `most` characters."""
    if len(text) > most:
        raise InvalidRequest(f"{name} has {len(text)} characters, allowed at most {most}")
