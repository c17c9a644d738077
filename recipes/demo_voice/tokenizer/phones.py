"""Which symbols of a sentence are sounds, and how well sounds were read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.frontend.tokenizers.phonemes.symbols import PHONES, START


@dataclass(frozen=True)
class Phones:
    """The sounds among a model's symbols, in their order; class k + 1 is the k-th, class 0 the
    blank between sounds.
    """

    symbols: tuple[str, ...]

    @classmethod
    def among(cls, ids: Mapping[str, int]) -> "Phones":
        """ids: symbol to text id, as `read_symbols` gives them."""
        return cls(tuple(symbol for symbol in sorted(ids, key=lambda symbol: ids[symbol]) if symbol in PHONES))

    def of(self, phonemes: str) -> list[int]:
        """Classes of the sounds of a phoneme string; stress, spaces and marks are passed over."""
        return [self.symbols.index(symbol) + 1 for symbol in phonemes if symbol in self.symbols]

    def places(self, phonemes: str) -> list[int]:
        """Where the same sounds stand among the text ids, which begin with the symbol of a
        sentence's start.
        """
        return [place for place, symbol in enumerate(START + phonemes) if symbol in self.symbols]


def greedy(log_probabilities: Tensor, lengths: Tensor) -> list[list[int]]:
    """[batch, time, classes] -> most probable class at each time, repetitions joined, blanks
    dropped. lengths: int64 [batch].
    """
    best = log_probabilities.argmax(-1)
    before = torch.cat([torch.zeros_like(best[:, :1]), best[:, :-1]], 1)
    within = torch.arange(best.shape[1], device=best.device)[None] < lengths[:, None]
    symbols = torch.where((best != before) & within, best, 0).tolist()
    return [[phone for phone in row if phone] for row in symbols]


def distance(recognised: Sequence[int], expected: Sequence[int]) -> int:
    """Fewest substitutions, insertions and deletions from one sequence to the other."""
    costs = list(range(len(expected) + 1))
    for row, left in enumerate(recognised, start=1):
        diagonal, costs[0] = costs[0], row
        for column, right in enumerate(expected, start=1):
            diagonal, costs[column] = (
                costs[column],
                min(costs[column] + 1, costs[column - 1] + 1, diagonal + (left != right)),
            )
    return costs[-1]
