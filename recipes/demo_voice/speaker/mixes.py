"""Which base voices a voice id is made of: `af_heart` is one, `af_heart+am_puck:0.4` a blend of two."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


def parts_of(voice: str) -> dict[str, float]:
    """Base voice -> share; shares add up to 1. Parts without a number share what the others leave.

    Raises ValueError when nothing is left for them, or the shares do not add up.
    """
    named = [part.partition(":") for part in voice.split("+")]
    given = {name: float(share) for name, colon, share in named if colon}
    rest = [name for name, colon, _ in named if not colon]
    left = 1.0 - sum(given.values())
    if len(given) + len(rest) != len(named) or (left < 1e-6 if rest else abs(left) > 0.02):
        raise ValueError(f"voice {voice!r}: the shares do not add up to 1")
    return given | {name: left / len(rest) for name in rest}


def mixes(voices: Iterable[str]) -> tuple[list[str], list[str], npt.NDArray[np.float32]]:
    """Distinct voices, base voices (both sorted) and the share of each base in each voice, [voices, bases]."""
    distinct = sorted(set(voices))
    parts = [parts_of(voice) for voice in distinct]
    bases = sorted({base for each in parts for base in each})
    shares = np.array([[each.get(base, 0.0) for base in bases] for each in parts], np.float32)
    return distinct, bases, shares


def overlap(shares: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """[voices, bases] -> [voices, voices]: how much of the one is in the other, 1 for the same mix, 0 when they share no base."""
    common: npt.NDArray[np.float32] = np.minimum(shares[:, None], shares[None]).sum(axis=2, dtype=np.float32)
    return common
