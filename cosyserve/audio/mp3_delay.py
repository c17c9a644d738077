"""The first frame of an MP3 stream: how much silence the codec puts in front of the sound.

Without it they play that silence: 46 ms at 24 kHz, by which the first sound comes later. It is the
frame of Xing and LAME ("Info", https://gabriel.mp3-tech.org/mp3infotag.html) without the number of
frames and bytes, which a stream does not know when it begins.
"""

import struct

_DECODER_SAMPLES = 529
"""What every decoder adds; players count it in addition to what the frame says."""
_ENCODER = b"LAME3.100"
"""Players read the delay behind this name only."""
_MPEG2_MONO, _MPEG1_MONO = 9, 17
"""Bytes of side information between the header of a frame and its sound."""
_KILOBITS = {
    True: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""By index of the header, for MPEG 1 and for MPEG 2 and 2.5, layer 3."""
_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_LEAST_BYTES = 4 + _MPEG1_MONO + 12 + 36
_HAS_BYTES = 2
"""The flag of the one count that is there: FFmpeg plays a frame without any as if it were sound."""
_UNKNOWN = 0xFFFFFFFF


def delay_frame(header: bytes, delay: int) -> bytes:
    """A silent frame of the same kind as the one that begins with these four bytes. delay: samples
    that the encoder and a decoder put in front of the sound.
    """
    (bits,) = struct.unpack(">I", header)
    version = bits >> 19 & 3
    first = version == 3
    rate = _RATES[version][bits >> 10 & 3]
    for index in range(bits >> 12 & 15, 15):
        size = (144 if first else 72) * 1_000 * _KILOBITS[first][index] // rate
        if size >= _LEAST_BYTES:
            break
    plain = bits & ~(0xF << 12) & ~(1 << 9) | index << 12  # its own bit rate, without a padding byte
    side = _MPEG1_MONO if first else _MPEG2_MONO
    tag = struct.pack(
        ">4sII9sBBIHHBB3sBBHIH",
        b"Info",
        _HAS_BYTES,
        _UNKNOWN,
        _ENCODER,
        1,  # constant bit rate
        *(0, 0, 0, 0, 0),  # low-pass filter, peak, gains, flags
        min(_KILOBITS[first][index], 255),
        (max(delay - _DECODER_SAMPLES, 0) << 12).to_bytes(3, "big"),  # the padding at the end is unknown
        *(0, 0, 0, 0, 0),  # gain, preset, length and checksum of the sound
    )
    frame = struct.pack(">I", plain | 1 << 16) + bytes(side) + tag
    return (frame + struct.pack(">H", _checksum(frame))).ljust(size, b"\0")


def _checksum(data: bytes) -> int:
    """CRC-16/ARC, as LAME has it over all that stands before it."""
    remainder = 0
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0xA001 if remainder & 1 else 0)
    return remainder
