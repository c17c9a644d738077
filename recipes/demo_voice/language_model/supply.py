"""Batches made by other processes than the training's, so that the device never waits for them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from recipes.demo_voice.language_model.layouts import NOTHING, Ids, Layouts
from recipes.demo_voice.language_model.material import Examples

GRANULE = 16
"""Batches are a multiple of this many positions long, so that few shapes occur."""
_POOL = 800
"""Sequences drawn at a time, to be sorted by length."""


@dataclass(frozen=True)
class Batch:
    """inputs, targets: int16 [batch, positions]; rows are padded at their end with input 0 and
    target NOTHING.
    """

    inputs: Tensor
    targets: Tensor

    def pin_memory(self) -> "Batch":
        """Called by the data loader."""
        return Batch(self.inputs.pin_memory(), self.targets.pin_memory())

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Inputs and targets, int64, without waiting for the copy."""
        return self.inputs.to(device, non_blocking=True).long(), self.targets.to(device, non_blocking=True).long()


def side_by_side(sequences: list[tuple[Ids, Ids]]) -> Batch:
    """Inputs and targets of sequences of any length."""
    positions = -(-max(len(inputs) for inputs, _ in sequences) // GRANULE) * GRANULE
    both = np.zeros((2, len(sequences), positions), np.int16)
    both[1] = NOTHING
    for row, (inputs, targets) in enumerate(sequences):
        both[0, row, : len(inputs)], both[1, row, : len(targets)] = inputs, targets
    return Batch(torch.from_numpy(both[0]), torch.from_numpy(both[1]))


def in_batches(sequences: list[tuple[Ids, Ids]], budget: int) -> list[Batch]:
    """Sequences of nearly equal length together, at most `budget` positions a batch, padding
    included, shortest first.
    """
    batches: list[Batch] = []
    current: list[tuple[Ids, Ids]] = []
    for sequence in sorted(sequences, key=lambda sequence: len(sequence[0])):
        positions = -(-len(sequence[0]) // GRANULE) * GRANULE
        if current and positions * (len(current) + 1) > budget:
            batches.append(side_by_side(current))
            current = []
        current.append(sequence)
    return [*batches, side_by_side(current)] if current else batches


class EndlessBatches(IterableDataset[Batch]):
    """Batches without end. arriving_share: float32 [1] in shared memory, the share of sequences
    laid out as arriving text.
    """

    def __init__(self, examples: Examples, layouts: Layouts, budget: int, seed: int) -> None:
        self._examples, self._layouts, self._budget, self._seed = examples, layouts, budget, seed
        self.arriving_share = torch.zeros(1)
        self.arriving_share.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it so

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        rng = np.random.default_rng([self._seed, 0 if worker is None else worker.id])
        while True:
            share = float(self.arriving_share)
            batches = in_batches([self._sequence(rng, share) for _ in range(_POOL)], self._budget)
            for place in rng.permutation(len(batches)):
                yield batches[place]

    def start(self, processes: int, *, pinned: bool) -> Iterator[Batch]:
        """An iterator fed by `processes` processes, 0 for none. Start it before the device is
        used.
        """
        ahead = 8 if processes else None
        return iter(DataLoader(self, batch_size=None, num_workers=processes, prefetch_factor=ahead, pin_memory=pinned))

    def _sequence(self, rng: np.random.Generator, share: float) -> tuple[Ids, Ids]:
        text, codes = self._examples.draw(rng)
        return self._layouts.arriving(text, codes) if rng.random() < share else self._layouts.whole(text, codes)
