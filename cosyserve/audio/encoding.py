"""Converts the 24 kHz 16-bit samples of the model to the encoding and rate that the caller asked
for.
"""

from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyserve.audio import g711
from cosyserve.spec import SAMPLE_RATE

_FULL_SCALE = 32768.0
_TAIL = np.zeros(480, dtype=np.float32)


class Encoding(StrEnum):
    """Sample encodings; names as in AudioEncoding of audio.proto."""

    LINEAR16 = "linear16"
    MULAW = "mulaw"
    ALAW = "alaw"

    @property
    def bytes_per_sample(self) -> int:
        return 2 if self is Encoding.LINEAR16 else 1


class CompressedEncoding(StrEnum):
    """Encodings whose bytes are a file and no samples; names as in AudioEncoding of audio.proto,
    values as in `cosyserve.audio.compressed.FileFormat`.
    """

    MP3 = "mp3"
    OGG_OPUS = "opus"
    AAC_ADTS = "aac"
    FLAC = "flac"


AnyEncoding = Encoding | CompressedEncoding


def encoding_named(name: str) -> AnyEncoding:
    """name: as in AudioEncoding, without its prefix. Raises KeyError."""
    return Encoding[name] if name in Encoding.__members__ else CompressedEncoding[name]


def to_pcm(samples: NDArray[np.floating[Any]]) -> bytes:
    """Samples in [-1, 1] to signed 16-bit little-endian, rounded to nearest; what is louder is
    clipped.
    """
    pcm: NDArray[np.int16] = np.clip(np.rint(samples * _FULL_SCALE), -32768, 32767).astype("<i2")
    return pcm.tobytes()


def from_pcm(pcm: bytes) -> NDArray[np.float32]:
    """Signed 16-bit little-endian bytes to float32 samples in [-1, 1)."""
    return np.frombuffer(pcm, dtype="<i2").astype(np.float32) / np.float32(_FULL_SCALE)


def encode(pcm: bytes, encoding: Encoding) -> bytes:
    """Signed 16-bit little-endian bytes to the bytes of `encoding`, sample for sample."""
    if encoding is Encoding.LINEAR16:
        return pcm
    law = g711.mulaw if encoding is Encoding.MULAW else g711.alaw
    return law(np.frombuffer(pcm, dtype="<i2").astype(np.int16)).tobytes()


def output_samples(samples: int, sample_rate: int) -> int:
    """Number of samples at `sample_rate` for `samples` at 24 kHz: samples * sample_rate / 24000,
    halves rounded up. Exact, because it uses integers.
    """
    return (2 * samples * sample_rate + SAMPLE_RATE) // (2 * SAMPLE_RATE)


class OutputStream:
    """Output of one utterance: 24 kHz s16le bytes in, in pieces of any length; the bytes out do not
    depend on the pieces.

    The whole output has output_samples(n, sample_rate) samples for n samples in; at 24 kHz linear
    PCM passes unchanged. The resampler holds back its filter length: 13 to 73 ms at 8 kHz, 5 to 39
    ms at 44.1 kHz, nothing at 24 kHz (measured, soxr 1.1.0, quality HQ).
    """

    def __init__(
        self, encoding: Encoding = Encoding.LINEAR16, sample_rate: int = SAMPLE_RATE, start_sample: int = 0
    ) -> None:
        """start_sample: first sample at `sample_rate` that is returned; earlier ones are computed
        for the resampler and dropped.
        """
        self.encoding = encoding
        self.sample_rate = sample_rate
        self.position = 0
        """Samples at `sample_rate` produced so far, including dropped ones."""
        self._start = start_sample
        self._taken = 0
        self._half = b""
        self._finished = False
        self._resampler = None if sample_rate == SAMPLE_RATE else _resampler(sample_rate)

    def feed(self, pcm: bytes) -> bytes:
        """The next bytes at 24 kHz, which may end in the middle of a sample; returns the output
        that is complete, which may be empty.
        """
        if self._finished:
            raise ValueError("the stream is finished")
        pcm = self._half + pcm
        whole = len(pcm) // 2 * 2
        self._half, pcm = pcm[whole:], pcm[:whole]
        self._taken += whole // 2
        if self._resampler is not None:
            pcm = to_pcm(self._resampler.resample_chunk(from_pcm(pcm)))
        return self._give(pcm)

    def finish(self) -> bytes:
        """The rest. Raises ValueError when the input ended in the middle of a sample."""
        if self._half:
            raise ValueError("the audio ended in the middle of a sample")
        self._finished = True
        if self._resampler is None:
            return b""
        missing = output_samples(self._taken, self.sample_rate) - self.position
        pieces: list[NDArray[np.float32]] = []
        # Silence flushes the resampler: its own flush rounds the length by an undocumented rule.
        while sum(piece.size for piece in pieces) < missing:
            pieces.append(self._resampler.resample_chunk(_TAIL))
        rest = np.concatenate(pieces)[:missing] if pieces else np.zeros(0, np.float32)
        return self._give(to_pcm(rest))

    def _give(self, pcm: bytes) -> bytes:
        late = min(max(self._start - self.position, 0), len(pcm) // 2)
        self.position += len(pcm) // 2
        return encode(pcm[2 * late :], self.encoding)


def _resampler(sample_rate: int) -> Any:
    import soxr  # only the service that resamples has it installed

    # float32: with int16 soxr dithers, and the dither depends on how the input was cut.
    return soxr.ResampleStream(SAMPLE_RATE, sample_rate, 1, dtype="float32", quality="HQ")
