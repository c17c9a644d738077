"""Layout of positions on the device: pages of the cache, tiles and chunks of prompts."""

from collections.abc import Sequence
from dataclasses import dataclass

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
