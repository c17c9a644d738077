"""Is it always the same person, and another one with every voice?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Embeddings = NDArray[np.float32]


@dataclass(frozen=True)
class Similarity:
    """Mean cosines of speaker embeddings, 1 for the same. to_self: each utterance to the mean of
    the voice's others. to_others: to the mean of another voice, the nearest counting. to_reference:
    to the mean of the reference's recordings. None without such."""

    to_self: float | None
    to_others: float | None
    to_reference: float | None


def similarity(own: Embeddings, others: Sequence[Embeddings], reference: Embeddings | None) -> Similarity:
    """Of a voice's embeddings [n, size], each of length 1, to themselves, to those of each other
    voice, and to the reference's.
    """
    rest = [np.delete(own, place, axis=0) for place in range(len(own))]
    return Similarity(
        _mean([row @ _centre(other) for row, other in zip(own, rest, strict=True)]) if len(own) > 1 else None,
        _mean([max(row @ _centre(other) for other in others) for row in own]) if others else None,
        _mean(own @ _centre(reference)) if reference is not None else None,
    )


def _centre(rows: Embeddings) -> Embeddings:
    mean: Embeddings = rows.mean(axis=0)
    return mean / np.float32(np.linalg.norm(mean))


def _mean(cosines: Sequence[np.float32] | Embeddings) -> float:
    return float(np.mean(cosines))
