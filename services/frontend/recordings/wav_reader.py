"""Our own WAV decoder: every field of an untrusted file is checked before it is used.

Source: Microsoft's "Multimedia Programming Interface and Data Specifications 1.0" and
WAVEFORMATEXTENSIBLE; G.711 for A-law and mu-law.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosyserve.audio import g711
from cosyserve.errors import InvalidRequest
from services.frontend.recordings.sound import Sound, require_channels, require_length, require_rate

_PCM, _FLOAT, _ALAW, _MULAW, _EXTENSIBLE = 0x0001, 0x0003, 0x0006, 0x0007, 0xFFFE
_BITS = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64), _ALAW: (8,), _MULAW: (8,)}
_NAMES = {_PCM: "PCM", _FLOAT: "float", _ALAW: "A-law", _MULAW: "mu-law"}
_MOST_CHUNKS = 1_000
"""Chunks before the data. Programs write a dozen; a chunk per byte would take longer to read than a
voice takes to create.
"""
_STREAMED = (0, 0xFFFFFFFF)
"""Programs write these when they do not know the length yet."""


@dataclass(frozen=True)
class _Layout:
    tag: int
    channels: int
    rate: int
    bits: int


def read_wav(data: bytes) -> Sound:
    """Decode a whole file, channels averaged.

    PCM of 8, 16, 24, 32 bits, float of 32 or 64, A-law and mu-law; one or two channels. Raises
    InvalidRequest with the problem and its position, and for an unsuitable rate or length before
    any sample is read.
    """
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise InvalidRequest("the WAV file does not begin with RIFF, a length and WAVE")
    layout: _Layout | None = None
    place = 12
    for _ in range(_MOST_CHUNKS):
        if place + 8 > len(data):
            break
        name, size = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        body = place + 8
        if name == b"data":
            if layout is None:
                raise InvalidRequest(f"the WAV file has its data at byte {place} before its format")
            left = len(data) - body
            if size > left and size not in _STREAMED:
                raise InvalidRequest(
                    f"the WAV file is cut off: its data at byte {place} has {size} bytes, of which {left} are there"
                )
            return _decode(memoryview(data)[body : body + (left if size in _STREAMED else size)], layout)
        if name == b"fmt ":
            layout = _layout(data[body : min(body + size, len(data))], place)
        place = body + size + size % 2
    else:
        raise InvalidRequest(
            f"the WAV file has over {_MOST_CHUNKS} chunks before its data, allowed are at most {_MOST_CHUNKS}"
        )
    raise InvalidRequest(f"the WAV file has no data ({len(data)} bytes, {'a' if layout else 'no'} format)")


def _layout(body: bytes, place: int) -> _Layout:
    if len(body) < 16:
        raise InvalidRequest(f"the WAV file's format at byte {place} has {len(body)} bytes, expected at least 16")
    tag, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", body)
    if tag == _EXTENSIBLE:
        if len(body) < 40:
            raise InvalidRequest(
                f"the WAV file's extensible format at byte {place} has {len(body)} bytes, expected at least 40"
            )
        tag = int.from_bytes(body[24:26], "little")
    if tag not in _BITS:
        raise InvalidRequest(f"the WAV file is encoded as {tag:#06x}, known are {', '.join(_NAMES.values())}")
    if bits not in _BITS[tag]:
        raise InvalidRequest(
            f"the WAV file has {_NAMES[tag]} samples of {bits} bits, allowed {', '.join(map(str, _BITS[tag]))}"
        )
    require_channels(channels)
    require_rate(rate)
    if block != channels * bits // 8:
        raise InvalidRequest(f"the WAV file's samples take {block} bytes, expected {channels * bits // 8}")
    return _Layout(tag, channels, rate, bits)


def _decode(data: memoryview, layout: _Layout) -> Sound:
    frame = layout.channels * layout.bits // 8
    count = len(data) // frame
    require_length(count, layout.rate)
    values = _values(data[: count * frame], layout).reshape(count, layout.channels)
    # The sum of two large floats may overflow; the check of the recording reports values that are
    # not finite.
    with np.errstate(over="ignore", invalid="ignore"):
        mean = values[:, 0] if layout.channels == 1 else values.astype(np.float64).mean(axis=1)
        return Sound(np.array(mean, np.float32), layout.rate)


def _values(data: memoryview, layout: _Layout) -> NDArray[np.floating]:
    if layout.tag == _FLOAT:
        return np.frombuffer(data, f"<f{layout.bits // 8}")
    if layout.tag in (_ALAW, _MULAW):
        table = g711.alaw_values() if layout.tag == _ALAW else g711.mulaw_values()
        return table[np.frombuffer(data, np.uint8)].astype(np.float32) / 32768
    if layout.bits == 8:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    if layout.bits == 24:
        parts = np.frombuffer(data, np.uint8).reshape(-1, 3)
        whole = np.zeros((len(parts), 4), np.uint8)
        whole[:, 1:] = parts
        return (whole.view("<i4")[:, 0] / 2147483648).astype(np.float32)
    return (np.frombuffer(data, f"<i{layout.bits // 8}") / float(1 << (layout.bits - 1))).astype(np.float32)
