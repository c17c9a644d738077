"""Counter-based random numbers: Philox4x32-10.

A draw is a pure function of a 64-bit key and a 128-bit counter, so any replica at any time, in any
order and any batch makes the same draw. Source: Salmon, Moraes, Dror, Shaw, "Parallel Random
Numbers: As Easy as 1, 2, 3", SC 2011.
"""

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_MASK, _SHIFT = 0xFFFFFFFF, 32
Words = TypeVar("Words", int, NDArray[np.uint64])
_ROWS_AT_ONCE = 4096
"""Rows whose counters fit into a processor's cache: half a second of draws takes two thirds of the
time.
"""


def philox4x32(key: int, counter: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Four 32-bit words for each counter.

    key: 0 <= key < 2**64. counter: [..., 4] uint64, each entry below 2**32. Returns [..., 4]
    uint64, each below 2**32.
    """
    return np.stack(_ten_rounds(key, *(counter[..., lane] for lane in range(4))), axis=-1)


def _ten_rounds(key: int, c0: Words, c1: Words, c2: Words, c3: Words) -> tuple[Words, ...]:
    """The four words of counters whose lanes are integers, or arrays of them, below 2**32."""
    k0, k1 = key & _MASK, (key >> 32) & _MASK
    for _ in range(10):
        p0, p1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c1 = (p1 >> _SHIFT) ^ c1 ^ k0, p1 & _MASK  # type: ignore[assignment]  # an integer takes the array's type
        c2, c3 = (p0 >> _SHIFT) ^ c3 ^ k1, p0 & _MASK  # type: ignore[assignment]
        k0, k1 = (k0 + _WEYL_0) & _MASK, (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


def uniform(key: int, stream: int, step: int, draw: int) -> float:
    """One double in [0, 1) with 53 random bits, for the counter (draw, step, stream, 0)."""
    first, second, _, _ = _ten_rounds(
        key, draw, step, stream, 0
    )  # of one counter, Python's integers are quicker than numpy's
    return (first << 21 | second >> 11) * 2.0**-53


def normal(key: int, stream: int, first: int, count: int, width: int) -> NDArray[np.float32]:
    """Standard normal draws [count, width] for rows first, first + 1, ... (Box-Muller).

    Row r, columns 4j to 4j + 3 come from counter (r mod 2**32, r div 2**32, j, stream), so any
    slice of rows equals the same rows of any larger slice.
    """
    normals = np.empty((count, width), dtype=np.float32)
    for begin, end, words in _words_of_rows(key, stream, first, count, width):
        for pair in range(-(-width // 2)):
            radius = words[2 * (pair % 2), pair // 2].astype(np.float64)
            radius += 1.0
            radius *= 2.0**-32
            np.log(radius, out=radius)
            radius *= -2.0
            np.sqrt(radius, out=radius)
            angle = (2.0 * np.pi * 2.0**-32) * words[2 * (pair % 2) + 1, pair // 2].astype(np.float64)
            normals[begin:end, 2 * pair] = radius * np.cos(angle)
            if 2 * pair + 1 < width:
                normals[begin:end, 2 * pair + 1] = radius * np.sin(angle)
    return normals


def uniforms(key: int, stream: int, first: int, count: int, width: int) -> NDArray[np.float32]:
    """Draws in [0, 1) with 24 random bits, [count, width], for rows first, first + 1, ...

    Row r, columns 4j to 4j + 3 are the words of the counter that `normal` has for them, so any
    slice of rows equals the same rows of any larger slice.
    """
    draws = np.empty((count, width), dtype=np.float32)
    for begin, end, words in _words_of_rows(key, stream, first, count, width):
        for column in range(width):
            draws[begin:end, column] = (words[column % 4, column // 4] >> np.uint64(8)).astype(np.float32)
    draws *= np.float32(2.0**-24)
    return draws


def _words_of_rows(
    key: int, stream: int, first: int, count: int, width: int
) -> Iterator[tuple[int, int, NDArray[np.uint64]]]:
    """Pieces of the rows first .. first + count - 1: begin and end among them, and their words [4,
    counters, rows].
    """
    counters = -(-width // 4)
    for begin in range(0, count, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, count)
        rows = np.arange(first + begin, first + end, dtype=np.uint64)
        # Lanes first and rows last: every operation then runs over long contiguous rows, which
        # halves the time.
        counter = np.empty((4, counters, end - begin), dtype=np.uint64)
        counter[0] = rows & _MASK
        counter[1] = rows >> _SHIFT
        counter[2] = np.arange(counters, dtype=np.uint64)[:, None]
        counter[3] = np.uint64(stream)
        yield begin, end, np.moveaxis(philox4x32(key, np.moveaxis(counter, 0, -1)), -1, 0)
