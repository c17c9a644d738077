"""Decoders that share no code with the server: Debian's ffmpeg and opus-tools."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

RATE = 24_000
FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
LONGER_SECONDS = {"mp3": 0.1, "aac": 0.1}
"""How much longer than pcm the documentation allows a format to be; others are exact."""
_SECONDS = 60


def decoded(audio: bytes, response_format: str) -> bytes:
    """Samples of 16 bits at 24 kHz. Raises ValueError for what the decoder complains about."""
    if response_format == "pcm":
        return audio
    # Its kind comes from the bytes alone, as a player has it that knows no header.
    command = ["ffmpeg", "-v", "error", "-i", "pipe:0", "-f", "s16le", "-ar", str(RATE), "-ac", "1", "pipe:1"]
    done = subprocess.run(command, input=audio, capture_output=True, timeout=_SECONDS, check=False)
    if done.returncode or done.stderr:
        raise ValueError(f"ffmpeg: {done.stderr.decode(errors='replace').strip()[:200]}")
    return done.stdout


def decoded_by_opusdec(audio: bytes) -> bytes:
    """As `decoded`, of an Ogg Opus file by the reference decoder."""
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "speech.opus", Path(folder) / "speech.raw"
        source.write_bytes(audio)
        subprocess.run(["opusdec", "--quiet", "--rate", str(RATE), source, target], timeout=_SECONDS, check=True)
        return target.read_bytes()


def check_length(audio: bytes, response_format: str, pcm: bytes) -> str:
    """Decode a file and compare its length with that of the same speech as pcm; returns the
    difference in words. Raises ValueError where it is more than is documented.
    """
    return compared(decoded(audio, response_format), response_format, pcm)


def compared(samples: bytes, response_format: str, pcm: bytes) -> str:
    """As `check_length`, of decoded samples."""
    longer = (len(samples) - len(pcm)) / 2 / RATE
    if not 0 <= longer <= LONGER_SECONDS.get(response_format, 0.0):
        raise ValueError(f"{response_format} decodes to {len(samples) / 2 / RATE:.3f} s, {longer:+.4f} s from pcm")
    return "as long as pcm" if longer == 0 else f"{1000 * longer:.0f} ms longer than pcm"
