"""How positions lie on the device: pages of the cache, tiles and chunks of prompts. Plain numbers;
no kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PAGE = 64
"""Positions to a page of the cache."""
CHUNK = 256
"""Positions of a pass."""
TILE = 16
"""Positions that attend together; those of one tile belong to one sequence."""


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
    """Tiles that a stretch takes."""
    return -(-positions // TILE)


def describe(stretches: Sequence[Stretch]) -> Tensor:
    """What a chunk holds, as int32 [3 CHUNK + 3 CHUNK / TILE]: inputs, positions, places (-1: an
    empty row); of each tile slot, first position and count."""
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
