"""Damaged files made from real ones: a seeded source of mutations of
bytes.
"""

import random
from collections.abc import Sequence

_HEAD = 256
"""Where headers are, and damage does most."""
_WORDS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def damaged(seeds: Sequence[bytes], source: random.Random) -> bytes:
    """One of `seeds` after 1 to 6 mutations; one in fifty as it is."""
    data = bytearray(source.choice(seeds))
    if source.random() < 0.02:
        return bytes(data)
    for _ in range(source.randint(1, 6)):
        _mutate(data, seeds, source)
    return bytes(data)


def _mutate(data: bytearray, seeds: Sequence[bytes], source: random.Random) -> None:
    place, kind = _place(data, source), source.randrange(9)
    if kind == 0 and data:
        data[place] ^= 1 << source.randrange(8)
    elif kind == 1 and data:
        data[place] = source.randrange(256)
    elif kind == 2:
        width = source.choice((1, 2, 4, 8))
        word = source.choice(_WORDS).to_bytes(8, source.choice(("little", "big")))
        data[place : place + width] = word[:width] if source.random() < 0.5 else word[-width:]
    elif kind == 3:
        del data[place:]
    elif kind == 4:
        del data[place : place + source.choice((1, 2, 4, 100, 5_000))]
    elif kind == 5:
        data[place:place] = source.randbytes(source.choice((1, 4, 50, 2_000)))
    elif kind == 6:
        end = place + source.choice((4, 30, 3_000))
        data[place:place] = data[place:end] * source.choice((1, 2, 20))
    elif kind == 7:
        other = source.choice(seeds)
        start = source.randrange(len(other))
        data[place:] = other[start:]
    else:
        length = source.choice((1, 16, 4_000))
        data[place : place + length] = source.choice((b"\0", b"\xff", b"\x7f\x80")) * length


def _place(data: bytearray, source: random.Random) -> int:
    reach = min(len(data), _HEAD) if source.random() < 0.7 else len(data)
    return source.randrange(reach) if reach else 0
