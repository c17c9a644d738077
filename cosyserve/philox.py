"""Counter-based random numbers: Philox4x32-10.

A draw is a pure function of a 64-bit key and a 128-bit counter, so any replica at any time, in any order and any batch makes
the same draw. Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""

import numpy as np
from numpy.typing import NDArray

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_MASK, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox4x32(key: int, counter: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Four 32-bit words for each counter.

    key: 0 <= key < 2**64. counter: [..., 4] uint64, each entry below 2**32. Returns [..., 4] uint64, each below 2**32.
    """
    c0, c1, c2, c3 = (counter[..., lane] for lane in range(4))
    k0, k1 = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ np.uint64(k0), p1 & _MASK, (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1), p0 & _MASK
        k0, k1 = (k0 + _WEYL_0) & 0xFFFFFFFF, (k1 + _WEYL_1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1)


def uniform(key: int, stream: int, step: int, draw: int) -> float:
    """One double in [0, 1) with 53 random bits, for the counter (draw, step, stream, 0)."""
    words = philox4x32(key, np.array([draw, step, stream, 0], dtype=np.uint64))
    return float((int(words[0]) << 21 | int(words[1]) >> 11) * 2.0**-53)


def normal(key: int, stream: int, first: int, count: int, width: int) -> NDArray[np.float32]:
    """Standard normal draws [count, width] for rows first, first + 1, ... (Box-Muller).

    Row r, columns 4j to 4j + 3 come from counter (r mod 2**32, r div 2**32, j, stream), so any slice of rows equals the same rows of any
    larger slice.
    """
    counters, pairs = -(-width // 4), -(-width // 2)
    rows = np.arange(first, first + count, dtype=np.uint64)
    # Lanes first and rows last: every operation then runs over long contiguous rows, which halves the time.
    counter = np.empty((4, counters, count), dtype=np.uint64)
    counter[0] = rows & _MASK
    counter[1] = rows >> _SHIFT
    counter[2] = np.arange(counters, dtype=np.uint64)[:, None]
    counter[3] = np.uint64(stream)
    words = np.moveaxis(philox4x32(key, np.moveaxis(counter, 0, -1)), -1, 1).reshape(2 * counters, 2, count)[:pairs].astype(np.float64)
    radius = np.sqrt(-2.0 * np.log((words[:, 0] + 1.0) * 2.0**-32))
    angle = (2.0 * np.pi * 2.0**-32) * words[:, 1]
    normals = np.empty((pairs, 2, count), dtype=np.float32)
    normals[:, 0] = radius * np.cos(angle)
    normals[:, 1] = radius * np.sin(angle)
    return np.ascontiguousarray(normals.reshape(2 * pairs, count)[:width].T)
