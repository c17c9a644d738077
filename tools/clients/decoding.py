"""What a sound file holds, by Debian's ffmpeg, which shares no code with the server."""

import subprocess
from pathlib import Path

from cosyserve.spec import SAMPLE_RATE

_SECONDS = 60.0


def decoded(file: bytes) -> bytes:
    """The samples of a file in any format: 16 bits, 24 kHz, one channel. Raises ValueError with
    what the decoder complains about, OSError where it is not installed.
    """
    command = ["ffmpeg", "-v", "error", "-i", "pipe:0", "-f", "s16le", "-ar", str(SAMPLE_RATE), "-ac", "1", "pipe:1"]
    done = subprocess.run(command, input=file, capture_output=True, timeout=_SECONDS, check=False)
    if done.returncode or done.stderr:
        raise ValueError(f"ffmpeg: {done.stderr.decode(errors='replace').strip()[:200]}")
    return done.stdout


def seconds_of(path: Path) -> float:
    """Its length; files named .pcm are samples already. Raises as `decoded`."""
    file = path.read_bytes()
    return len(file if path.suffix == ".pcm" else decoded(file)) / 2 / SAMPLE_RATE
