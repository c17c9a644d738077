"""The interface between the engine and the device, and the layout of positions on it: pages of the
cache, tiles and chunks of prompts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

PAGE = 64
"""Positions per page of the cache."""
CHUNK = 256
"""Positions per prefill pass."""
TILE = 16
"""Positions per tile of attention; all positions of a tile belong to one sequence."""


@dataclass(frozen=True)
class Stretch:
    """Positions of one sequence that run in a chunk: rows of the joined embedding table, from
    `position` on. `pages`: in order.
    """

    slot: int
    position: int
    inputs: Sequence[int]
    pages: Sequence[int]


def tiles_of(positions: int) -> int:
    """Number of tiles of a stretch."""
    return -(-positions // TILE)


def describe(stretches: Sequence[Stretch]) -> Tensor:
    """The contents of a chunk, as int32 [3 CHUNK + 3 CHUNK / TILE]: inputs, positions and places in
    the cache (-1: an empty row), then the slot, first position and count of each tile.
    """
    inputs, positions, places = [0] * CHUNK, [0] * CHUNK, [-1] * CHUNK
    slots, begins, counts = [0] * (CHUNK // TILE), [0] * (CHUNK // TILE), [0] * (CHUNK // TILE)
    tile = 0
    for stretch in stretches:
        for first in range(0, len(stretch.inputs), TILE):
            part = stretch.inputs[first : first + TILE]
            at, begin = tile * TILE, stretch.position + first
            slots[tile], begins[tile], counts[tile] = stretch.slot, begin, len(part)
            inputs[at : at + len(part)] = part
            positions[at : at + len(part)] = range(begin, begin + len(part))
            places[at : at + len(part)] = [
                stretch.pages[p // PAGE] * PAGE + p % PAGE for p in range(begin, begin + len(part))
            ]
            tile += 1
    return torch.tensor(inputs + positions + places + slots + begins + counts, dtype=torch.int32)


ReadDecisions = Callable[[], list[int]]
"""Waits for the device and returns one decision for each slot of a step: an id, or as in `slots`.
"""


class Runner(Protocol):
    """Runs calls in order, on memory for a fixed number of slots and pages."""

    page_bytes: int
    pages: int
    slots: int

    def row_of(self, table: int, row: int) -> int:
        """Index in the joined embedding table of row `row` of table `table`."""

    def assign(self, slot: int, pages: Sequence[int], replay: Sequence[int]) -> None:
        """Assign a slot to a new sequence."""

    def extend(self, slot: int, first: int, pages: Sequence[int], capacity: int) -> None:
        """Add pages to the sequence of this slot, after its `first` pages; from the next step on it
        may have `capacity` positions.
        """

    def prefill(self, stretches: Sequence[Stretch]) -> None:
        """Run a prefill chunk."""

    def activate(self, slot: int, state: Sequence[int]) -> None:
        """Write the state row of a slot, by which it decodes from the next step on."""

    def step(self, slots: Sequence[int]) -> ReadDecisions:
        """Run one decode step of these slots."""

    def close(self) -> None:
        """Wait for the device: memory that it still writes to must not be freed."""
