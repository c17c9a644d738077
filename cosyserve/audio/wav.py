"""WAV files (RIFF) that are written while the sound arrives."""

import struct
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from cosyserve.audio.encoding import Encoding

_FORMAT_TAG = {Encoding.LINEAR16: 1, Encoding.ALAW: 6, Encoding.MULAW: 7}
_UNKNOWN = 0xFFFFFFFF


def wav_header(sample_rate: int, samples: int | None, encoding: Encoding = Encoding.LINEAR16) -> bytes:
    """The header before mono sample data. samples None: the length is unknown; all sizes are
    0xFFFFFFFF, as players expect of a stream.
    """
    width = encoding.bytes_per_sample
    layout = struct.pack("<HHIIHH", _FORMAT_TAG[encoding], 1, sample_rate, sample_rate * width, width, 8 * width)
    chunks = _chunk(b"fmt ", layout)
    if encoding is not Encoding.LINEAR16:
        chunks = _chunk(b"fmt ", layout + struct.pack("<H", 0)) + _chunk(
            b"fact", struct.pack("<I", _UNKNOWN if samples is None else samples)
        )
    size = _UNKNOWN if samples is None else samples * width
    whole = _UNKNOWN if samples is None else 4 + len(chunks) + 8 + size + size % 2
    return b"RIFF" + struct.pack("<I", whole) + b"WAVE" + chunks + b"data" + struct.pack("<I", size)


def _chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body


class WavWriter:
    """A WAV file that is playable at any time; its sizes are filled in at the end."""

    def __init__(self, path: Path, sample_rate: int, encoding: Encoding = Encoding.LINEAR16) -> None:
        self.sample_rate = sample_rate
        self.encoding = encoding
        self.samples = 0
        self._file: BinaryIO = path.open("wb")
        self._file.write(wav_header(sample_rate, None, encoding))

    def write(self, audio: bytes) -> None:
        """Append whole samples in the file's encoding."""
        self._file.write(audio)
        self.samples += len(audio) // self.encoding.bytes_per_sample

    def close(self) -> None:
        """Fill in the sizes and close."""
        if self.samples * self.encoding.bytes_per_sample % 2:
            self._file.write(b"\0")
        self._file.seek(0)
        self._file.write(wav_header(self.sample_rate, self.samples, self.encoding))
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
