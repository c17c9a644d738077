"""Sound files of every kind that is read, a little over a second each: what uploads are mutated
from.
"""

import io
import struct

import numpy as np
import soundfile
from numpy.typing import NDArray

from cosyserve.audio import g711
from cosyserve.audio.wav import wav_header

_SECONDS = 1.15


def voiced(rate: int) -> NDArray[np.float32]:
    """A falling buzz in syllables with silence at both ends, float32, loudest at about 0.3."""
    time = np.arange(round(_SECONDS * rate)) / rate
    phase = 2 * np.pi * (140 * time - 6 * time**2)
    buzz = sum(np.sin(number * phase) / number for number in range(1, 30))
    shape = (0.55 + 0.45 * np.sin(2 * np.pi * 3 * time)) * (np.abs(time - _SECONDS / 2) < _SECONDS / 2 - 0.02)
    return np.asarray(0.15 * buzz * shape, np.float32)


def seeds() -> dict[str, bytes]:
    """Name to file."""
    low, mid, wide = voiced(16_000), voiced(24_000), voiced(48_000)
    stereo = np.stack([mid, 0.5 * mid], axis=1)
    whole = (mid * 32767).astype(np.int16)
    files = {
        "alaw.wav": wav(6, 8, 24_000, g711.alaw(whole).tobytes()),
        "mulaw.wav": wav(7, 8, 24_000, g711.mulaw(whole).tobytes()),
        "float.wav": wav(3, 32, 16_000, low.astype("<f4").tobytes()),
        "streamed.wav": wav_header(24_000, None) + whole.tobytes(),
    }
    for name, samples, rate, kind, subtype in (
        ("pcm8.wav", low, 16_000, "WAV", "PCM_U8"),
        ("pcm16.wav", mid, 24_000, "WAV", "PCM_16"),
        ("pcm24.wav", stereo, 24_000, "WAV", "PCM_24"),
        ("pcm32.wav", low, 16_000, "WAVEX", "PCM_32"),
        ("double.wav", low, 16_000, "WAVEX", "DOUBLE"),
        ("16.flac", mid, 24_000, "FLAC", "PCM_16"),
        ("24.flac", stereo, 24_000, "FLAC", "PCM_24"),
        ("mono.mp3", mid, 24_000, "MP3", "MPEG_LAYER_III"),
        ("stereo.mp3", stereo, 24_000, "MP3", "MPEG_LAYER_III"),
        ("vorbis.ogg", low, 16_000, "OGG", "VORBIS"),
        ("opus.ogg", wide, 48_000, "OGG", "OPUS"),
    ):
        file = io.BytesIO()
        soundfile.write(file, samples, rate, format=kind, subtype=subtype)
        files[name] = file.getvalue()
    return files


def wav(tag: int, bits: int, rate: int, data: bytes, channels: int = 1) -> bytes:
    """A WAV file of any format tag."""
    block = channels * bits // 8
    layout = struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, bits)
    chunks = (
        b"fmt "
        + struct.pack("<I", len(layout))
        + layout
        + b"data"
        + struct.pack("<I", len(data))
        + data
        + b"\0" * (len(data) % 2)
    )
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks
