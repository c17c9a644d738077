"""G.711 companding: 16-bit linear samples to 8-bit mu-law or A-law.

Source: ITU-T G.711 tables 1 and 2, with the treatment of negative samples of the ITU-T G.191
software tools: the magnitude of a negative sample x is -x - 1, so both halves have intervals of
equal width and none straddles zero.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

_MU_BIAS, _MU_LARGEST = 33, 0x1FFF


def mulaw(samples: NDArray[np.int16]) -> NDArray[np.uint8]:
    """[n] int16 to [n] uint8, mu-law."""
    return _mulaw_table()[samples.view(np.uint16)]


def alaw(samples: NDArray[np.int16]) -> NDArray[np.uint8]:
    """[n] int16 to [n] uint8, A-law with the even bits inverted as on the line."""
    return _alaw_table()[samples.view(np.uint16)]


@cache
def _mulaw_table() -> NDArray[np.uint8]:
    negative, magnitude = _every_sample()
    biased = np.minimum((magnitude >> 2) + _MU_BIAS, _MU_LARGEST)
    segment = _highest_bit(biased) - 5
    code = segment << 4 | (biased >> (segment + 1) & 0x0F)
    table: NDArray[np.uint8] = (np.where(negative, 0x7F, 0xFF) ^ code).astype(np.uint8)
    return table


@cache
def _alaw_table() -> NDArray[np.uint8]:
    negative, magnitude = _every_sample()
    twelve = magnitude >> 4
    segment = np.maximum(_highest_bit(np.maximum(twelve, 1)) - 4, 0)
    # The two lowest segments share one step size: only from the second on is the leading bit left
    # out.
    code = np.where(twelve < 16, twelve, (segment + 1) << 4 | (twelve >> segment & 0x0F))
    table: NDArray[np.uint8] = (np.where(negative, 0x00, 0x80) ^ 0x55 ^ code).astype(np.uint8)
    return table


def _every_sample() -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    samples = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int64)
    return samples < 0, np.where(samples < 0, ~samples, samples)


def _highest_bit(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return (np.frexp(values.astype(np.float64))[1] - 1).astype(np.int64)


@cache
def mulaw_values() -> NDArray[np.int16]:
    """[256] int16: the sample of each mu-law byte, the middle of its interval."""
    codes = ~np.arange(256, dtype=np.int64) & 0xFF
    segment = codes >> 4 & 0x07
    magnitude = ((((codes & 0x0F) << 1) + _MU_BIAS) << segment) - _MU_BIAS
    return (np.where(codes & 0x80, -magnitude, magnitude) << 2).astype(np.int16)


@cache
def alaw_values() -> NDArray[np.int16]:
    """[256] int16: the sample of each A-law byte, the middle of its interval."""
    codes = np.arange(256, dtype=np.int64) ^ 0x55
    segment, step = codes >> 4 & 0x07, codes & 0x0F
    magnitude = np.where(segment == 0, (step << 1) + 1, ((step << 1) + 33) << np.maximum(segment - 1, 0))
    return (np.where(codes & 0x80, magnitude, -magnitude) << 3).astype(np.int16)
