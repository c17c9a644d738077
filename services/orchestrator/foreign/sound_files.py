"""Whether a recording of another contract, which may be samples without a header, is a file."""

_BEGINNINGS = (b"RIFF", b"fLaC", b"OggS", b"ID3")


def is_sound_file(audio: bytes) -> bool:
    """By its first bytes: WAV, FLAC, Ogg, or MP3 with a tag."""
    return audio.startswith(_BEGINNINGS)
