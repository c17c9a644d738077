"""Which program of the decode step of one launch multiplies which tiles, and the weights in the
order in which each program reads them (`kernels/one_launch`).

A program reads, layer after layer: its tiles of queries, keys and values; its tile of the
attention's output; its tiles of gate and up; its tile of down; and after the last layer its rows of
the head. A tile has 8 rows, that of gate and up 8 of each. Weights of 8 rows and 16 columns are a
unit of 256 bytes, and the eighth of the columns that a warp multiplies is together.
"""

import struct
from dataclasses import dataclass, field

import torch
from torch import Tensor

from services.llm.generation.config import LlmConfig
from services.llm.gpu.packing import PackedLayer, PackedModel

WARPS = 8
ROWS = 8
"""Rows of a tile."""
STEP = 16
"""Columns of a unit."""
CHUNK = 8
"""Units of a warp in one chunk of the down product."""
FIRST_STEPS = 4
"""Units of a warp in the first of the two chunks of a tile of gate and up."""
MOST_HEADS, MOST_GATED = 2, 6
"""Most tiles of a program, of queries, keys and values, and of gate and up."""
_LAYOUT = struct.Struct(f"<2q3i{MOST_HEADS}ii{MOST_GATED}i2i")
"""`Plan` of the kernel."""


@dataclass
class Program:
    """Tiles of one program. own: its tile of the residual stream (of the attention's output and of
    down), -1: none.
    """

    own: int = -1
    heads: list[int] = field(default_factory=list)
    gated: list[int] = field(default_factory=list)
    first_id: int = 0
    ids: int = 0
    rank: int = 0
    """Place among the programs in the order in which they take parts of the attention: those with
    the fewest bytes first.
    """

    def units(self, config: LlmConfig) -> int:
        """Units of weights in a layer."""
        wide, deep = config.hidden_size // STEP, config.intermediate_size // STEP
        return (len(self.heads) + 2 * len(self.gated)) * wide + (wide + deep if self.own >= 0 else 0)


def divide(config: LlmConfig, programs: int) -> list[Program]:
    """Distribute all tiles over `programs` programs so that each reads about the same number of
    bytes, and gate and up evenly, because all wait for them.
    """
    owned = config.hidden_size // ROWS
    plan = [Program(own=index if index < owned else -1) for index in range(programs)]
    # What a program without a tile of the residual stream reads for the attention instead.
    load = [program.units(config) + (100 if program.own < 0 else 0) for program in plan]
    by_load = sorted(range(programs), key=lambda index: (load[index], index))
    tiles = config.intermediate_size // ROWS
    for tile in range(tiles):
        index = by_load[tile % programs]
        plan[index].gated.append(tile)
        load[index] += 2 * config.hidden_size // STEP
    for tile in range((config.heads + 2 * config.kv_heads) * config.head_size // ROWS):
        index = min((i for i in range(programs) if len(plan[i].heads) < MOST_HEADS), key=lambda i: (load[i], i))
        plan[index].heads.append(tile)
        load[index] += config.hidden_size // STEP
    for rank, index in enumerate(sorted(range(programs), key=lambda i: (plan[i].units(config), i))):
        plan[index].rank = rank
    share, left = divmod(config.speech.rows, programs)
    first = 0
    for index, program in enumerate(plan):
        program.first_id, program.ids = first, share + (index < left)
        first += program.ids
    return plan


@dataclass(frozen=True)
class OrderedWeights:
    """weights: of all programs, bytes, one program after the other; as large as those of a step.
    plans: `Plan` of the kernel for each program, bytes. bias: float32 [layers, heads' width].
    """

    weights: Tensor
    plans: Tensor
    bias: Tensor
    most_gated: int
    """Most tiles of gate and up of one program."""

    @classmethod
    def of(cls, model: PackedModel, programs: int) -> "OrderedWeights":
        """The weights of the model for that many programs."""
        config = model.config
        plan = divide(config, programs)
        a_unit, a_row = ROWS * STEP * 2, config.hidden_size * 4
        sizes = [config.layers * program.units(config) * a_unit + program.ids * a_row for program in plan]
        offsets = [sum(sizes[:index]) for index in range(programs)]
        weights = torch.empty(sum(sizes), dtype=torch.uint8, device=model.device)
        for number, layer in enumerate(model.layers):
            for program, offset, parts in zip(plan, offsets, layer_parts(layer, plan), strict=True):
                size = program.units(config) * a_unit
                at = offset + number * size
                weights[at : at + size] = torch.cat([part.flatten() for part in parts]).view(torch.uint8)
        for program, offset, size in zip(plan, offsets, sizes, strict=True):
            rows = model.head[program.first_id : program.first_id + program.ids]
            weights[offset + size - program.ids * a_row : offset + size] = rows.contiguous().view(torch.uint8).flatten()
        plans = b"".join(described(*one) for one in zip(plan, offsets, sizes, strict=True))
        return cls(
            weights=weights,
            plans=torch.frombuffer(bytearray(plans), dtype=torch.uint8).to(model.device),
            bias=torch.stack([layer.bias for layer in model.layers]).contiguous(),
            most_gated=max(len(program.gated) for program in plan),
        )


def _fragments(units: Tensor) -> Tensor:
    """[tiles, warps, row, units, column] -> [tiles, warps, numbers]: units in pairs by row, four
    columns, unit of the pair, column; a last unit without a pair by row, column.
    """
    pairs = units.shape[3] // 2
    tiles, warps = units.shape[:2]
    paired = units[:, :, :, : 2 * pairs].reshape(tiles, warps, ROWS, pairs, 2, STEP // 4, 4)
    first = paired.permute(0, 1, 3, 2, 5, 4, 6).flatten(2)
    rest = units[:, :, :, 2 * pairs :].permute(0, 1, 3, 2, 4).flatten(2)
    return torch.cat([first, rest], dim=2)


def eight_rows(matrix: Tensor) -> Tensor:
    """[rows, columns] -> [tiles, numbers of a tile]: by warp, then as `_fragments`."""
    units = matrix.shape[1] // (WARPS * STEP)
    return _fragments(matrix.reshape(-1, ROWS, WARPS, units, STEP).transpose(1, 2)).flatten(1)


def gate_and_up(matrix: Tensor) -> Tensor:
    """[gate's rows, then up's, columns] -> [tiles, numbers of a tile]: by chunk, warp, unit, row,
    four columns, gate or up, column.
    """
    units = matrix.shape[1] // (WARPS * STEP)
    both = matrix.reshape(2, -1, ROWS, WARPS, units, STEP // 4, 4).permute(1, 3, 4, 2, 5, 0, 6)
    return torch.cat([both[:, :, :FIRST_STEPS].flatten(1), both[:, :, FIRST_STEPS:].flatten(1)], dim=1)


def deep_rows(matrix: Tensor) -> Tensor:
    """[rows, columns] -> [tiles, numbers of a tile]: by chunk, warp, then as `_fragments`."""
    units = matrix.shape[1] // (WARPS * STEP)
    by_warp = matrix.reshape(-1, ROWS, WARPS, units, STEP).transpose(1, 2)
    chunks = [_fragments(by_warp[:, :, :, first : first + CHUNK]).flatten(1) for first in range(0, units, CHUNK)]
    return torch.cat(chunks, dim=1)


def layer_parts(layer: PackedLayer, plan: list[Program]) -> list[list[Tensor]]:
    """The tiles of each program in the order in which it reads them."""
    heads, out, gated, down = (
        eight_rows(layer.qkv), eight_rows(layer.out), gate_and_up(layer.gate_up), deep_rows(layer.down)
    )  # fmt: skip
    return [
        [heads[program.heads], *([out[program.own]] if program.own >= 0 else []), gated[program.gated],
         *([down[program.own]] if program.own >= 0 else [])]
        for program in plan
    ]  # fmt: skip


def described(program: Program, offset: int, size: int) -> bytes:
    """`Plan` of the kernel."""
    heads = [*program.heads, *[0] * (MOST_HEADS - len(program.heads))]
    gated = [*program.gated, *[0] * (MOST_GATED - len(program.gated))]
    return _LAYOUT.pack(
        offset, size, program.own, program.rank, len(program.heads), *heads, len(program.gated), *gated,
        program.first_id, program.ids,
    )  # fmt: skip
