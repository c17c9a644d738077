"""Encodes speech as MP3, Opus (in Ogg), AAC (ADTS) or FLAC while it arrives, by FFmpeg (PyAV).

Each format is encoded with the settings that give its first bytes soonest: no bit reservoir, short
frames, every packet written at once. The bytes do not depend on how the samples were cut, and hold
no date and no version. Every file says in its metadata that the audio is synthetic.

PyAV is the extra `audio` of the package `cosyserve`.
"""

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from cosyserve.audio.encoding import Encoding
from cosyserve.audio.mp3_delay import delay_frame
from cosyserve.audio.wav import wav_header
from cosyserve.errors import InvalidRequest
from cosyserve.spec import SAMPLE_RATE

SYNTHETIC = "synthetic audio"
"""The comment in the metadata of every compressed file."""


class FileFormat(StrEnum):
    """Formats of whole files; a stream of one is its file, as far as it is written."""

    MP3 = "mp3"
    OPUS = "opus"
    AAC = "aac"
    FLAC = "flac"
    WAV = "wav"
    PCM = "pcm"

    @property
    def media_type(self) -> str:
        """The value of Content-Type; the one of raw samples names their rate only in our header."""
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    FileFormat.MP3: "audio/mpeg",
    FileFormat.OPUS: "audio/ogg",
    FileFormat.AAC: "audio/aac",
    FileFormat.FLAC: "audio/flac",
    FileFormat.WAV: "audio/wav",
    FileFormat.PCM: "audio/pcm",
}


class FileEncoder(Protocol):
    """Takes signed 16-bit little-endian mono samples, whole ones, and gives the bytes of a file."""

    def encode(self, pcm: bytes) -> bytes:
        """The bytes that are complete after these samples; may be empty."""

    def finish(self) -> bytes:
        """The rest of the file."""


def file_encoder(file_format: FileFormat, sample_rate: int = SAMPLE_RATE, bit_rate: int | None = None) -> FileEncoder:
    """sample_rate: of the samples, in hertz, and of the file. bit_rate: bits per second of a lossy
    format; None: one at which speech of this rate is transparent. Raises InvalidRequest for a rate
    that the format does not have, and ModuleNotFoundError without PyAV.
    """
    if file_format is FileFormat.WAV:
        return Uncompressed(wav_header(sample_rate, None))
    if file_format is FileFormat.PCM:
        return Uncompressed()
    check_rate(file_format, sample_rate)
    codec = _CODECS[file_format]
    return Compressed(codec, sample_rate, bit_rate or codec.bit_rate)


def check_rate(file_format: FileFormat, sample_rate: int) -> None:
    """Raises InvalidRequest for a rate in hertz that the format does not have."""
    codec = _CODECS.get(file_format)
    if codec is not None and sample_rate not in codec.sample_rates:
        allowed = ", ".join(map(str, codec.sample_rates))
        raise InvalidRequest(f"{file_format} cannot hold {sample_rate} Hz; allowed are {allowed}")


def most_bytes(file_format: FileFormat, sample_rate: int) -> int:
    """Bytes that a second of sound takes at most: of a lossy format twice its mean."""
    codec = _CODECS.get(file_format)
    return 2 * sample_rate if codec is None or codec.bit_rate is None else 2 * codec.bit_rate // 8


def is_installed() -> bool:
    """Whether compressed formats can be written here."""
    return importlib.util.find_spec("av") is not None


class EncodedFile:
    """A file of any format, written while the sound arrives. Samples as of `FileEncoder`."""

    def __init__(self, path: Path, file_format: FileFormat, sample_rate: int) -> None:
        self._encoder = file_encoder(file_format, sample_rate)
        self._file = path.open("wb")

    def write(self, pcm: bytes) -> None:
        """Append samples."""
        self._file.write(self._encoder.encode(pcm))

    def close(self) -> None:
        """Write the rest and close."""
        with self._file:
            self._file.write(self._encoder.finish())


class Uncompressed:
    """Samples as they are, behind a header. The header of a WAV stream says that the length is
    unknown.
    """

    def __init__(self, header: bytes = b"", encoding: Encoding = Encoding.LINEAR16) -> None:
        self._header = header
        self.encoding = encoding

    def encode(self, pcm: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + pcm

    def finish(self) -> bytes:
        return self.encode(b"")


@dataclass(frozen=True)
class Codec:
    """How FFmpeg writes one format. container, encoder: its names; sample_format: what the encoder
    takes. delay_frame: made of the first four bytes of a stream and the samples that the codec puts
    in front, it goes before the first frame.
    """

    container: str
    encoder: str
    sample_format: str
    sample_rates: tuple[int, ...]
    bit_rate: int | None = None
    delay_frame: Callable[[bytes, int], bytes] | None = None
    container_options: Mapping[str, str] = field(default_factory=dict)
    encoder_options: Mapping[str, str] = field(default_factory=dict)


_CODECS = {
    # Without the bit reservoir each frame can be decoded as soon as it is there. The header of Xing
    # that FFmpeg has would be filled in at the end, which a stream cannot.
    FileFormat.MP3: Codec(
        "mp3",
        "libmp3lame",
        "s16p",
        (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000),
        bit_rate=96_000,
        delay_frame=delay_frame,
        container_options={"write_xing": "0", "id3v2_version": "3"},
        encoder_options={"reservoir": "0", "compression_level": "7"},
    ),
    # Pages of one frame: pages of a second would hold back the first one.
    FileFormat.OPUS: Codec(
        "ogg",
        "libopus",
        "s16",
        (8000, 12000, 16000, 24000, 48000),
        bit_rate=48_000,
        container_options={"page_duration": "20000"},
        encoder_options={"frame_duration": "20", "application": "audio", "compression_level": "5"},
    ),
    FileFormat.AAC: Codec(
        "adts",
        "aac",
        "fltp",
        (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000),
        bit_rate=64_000,
        container_options={"write_id3v2": "1"},
        encoder_options={"aac_coder": "fast"},
    ),
    FileFormat.FLAC: Codec(
        "flac",
        "flac",
        "s16",
        (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000),
        container_options={"metadata_header_padding": "0"},
        encoder_options={"frame_size": "480", "compression_level": "0"},
    ),
}
_ALWAYS = {"flush_packets": "1", "fflags": "+bitexact"}


class Compressed:
    """One file. Not thread-safe. Encoding a chunk of lossy audio takes up to a millisecond, so
    servers call it in a thread.
    """

    def __init__(self, codec: Codec, sample_rate: int, bit_rate: int | None) -> None:
        import av  # only who encodes has it installed

        self._av = av
        self._written = _Written()
        self._container: Any = av.open(
            self._written, "w", format=codec.container, options={**codec.container_options, **_ALWAYS}
        )
        self._container.metadata["comment"] = SYNTHETIC
        self._stream = cast(
            "Any", self._container.add_stream(codec.encoder, rate=sample_rate, options=dict(codec.encoder_options))
        )
        self._stream.format, self._stream.layout = codec.sample_format, "mono"
        if bit_rate is not None:
            self._stream.bit_rate = bit_rate
        self._container.start_encoding()
        self._sample_format, self._sample_rate = codec.sample_format, sample_rate
        self._frame_bytes = 2 * int(self._stream.codec_context.frame_size)
        self._delay_frame = codec.delay_frame
        self._waiting = b""
        self._position = 0

    def encode(self, pcm: bytes) -> bytes:
        self._waiting += pcm
        whole = len(self._waiting) // self._frame_bytes * self._frame_bytes
        frames, self._waiting = self._waiting[:whole], self._waiting[whole:]
        for begin in range(0, whole, self._frame_bytes):
            self._add(frames[begin : begin + self._frame_bytes])
        return self._written.take()

    def finish(self) -> bytes:
        if self._waiting:
            self._add(self._waiting)
        self._mux(self._stream.encode(None))
        self._container.close()
        return self._written.take()

    def _add(self, pcm: bytes) -> None:
        samples = np.frombuffer(pcm, "<i2")[None]
        if self._sample_format == "fltp":
            samples = samples.astype(np.float32) / np.float32(32768)
        frame = self._av.AudioFrame.from_ndarray(samples, format=self._sample_format, layout="mono")
        frame.sample_rate, frame.pts = self._sample_rate, self._position
        self._position += len(pcm) // 2
        self._mux(self._stream.encode(frame))

    def _mux(self, packets: Iterable[Any]) -> None:
        for packet in packets:
            if self._delay_frame is not None:
                first = bytes(packet)
                both = self._av.Packet(self._delay_frame(first[:4], -packet.pts) + first)
                both.stream, both.pts, both.dts, both.time_base = self._stream, packet.pts, packet.dts, packet.time_base
                packet, self._delay_frame = both, None
            self._container.mux(packet)


class _Written:
    """A file that FFmpeg writes to and cannot seek in."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """What was written since the last call."""
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken
