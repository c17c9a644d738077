"""Writes the state of streams into the inputs of the graphs, and reads what a block adds to it.

Of a network in a graph `StreamCache` holds one tensor for each stack of layers: keys and values of
all its layers together, [2 * layers, rows, heads, time, head width], and likewise one for all
convolutions of one reach.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from services.token2wav.flow.stream_cache import StreamCache
from services.token2wav.flow.unet.encoder import relative_positions


@lru_cache(maxsize=64)
def positions(keys: int, queries: int, width: int) -> Tensor:
    """[keys + queries, width]: a row of zeros, then the sinusoids of `relative_positions`."""
    table = relative_positions(keys, queries, width, torch.device("cpu"))
    return torch.cat((torch.zeros(1, width), table))


def fill_kept(given: Mapping[str, Tensor], suffix: str, rows: int, pasts: Sequence[StreamCache], at: int) -> None:
    """The `past` and `columns` of each stream, whose rows are `rows` each; zeros where nothing is
    kept. suffix: of the names. at: place of the stack in `StreamCache`.
    """
    past, columns = given[f"past{suffix}"], given[f"columns{suffix}"]
    for stream, cache in enumerate(pasts):
        own = slice(rows * stream, rows * (stream + 1))
        blocks = cache.attentions[at] if cache.attentions else ()
        begin = past.shape[3] - sum(block.shape[3] for block in blocks)
        # Left from another call they might not be finite, and no share of them would be zero.
        past[:, own, :, :begin].zero_()
        for block in blocks:
            past[:, own, :, begin : begin + block.shape[3]].copy_(block, non_blocking=True)
            begin += block.shape[3]
        if cache.convolutions:
            columns[own].copy_(cache.convolutions[at], non_blocking=True)
        else:
            columns[own].zero_()


def fill_lengths(given: Mapping[str, Tensor], suffix: str, rows: int, kept: Sequence[int], new: int) -> None:
    """`seen` and `tail`: how much of `past` each stream has, and how much of the block is no
    padding, in columns.
    """
    seen, tail = (
        torch.zeros(given[f"{name}{suffix}"].shape, dtype=given[f"{name}{suffix}"].dtype) for name in ("seen", "tail")
    )
    past = given[f"past{suffix}"].shape[3]
    for stream, length in enumerate(kept):
        seen[rows * stream : rows * (stream + 1), past - length : past + new] = True
    for column in range(tail.shape[1]):
        tail[:, column, new + column] = 1.0
    given[f"seen{suffix}"].copy_(seen, non_blocking=True)
    given[f"tail{suffix}"].copy_(tail, non_blocking=True)


def added(made: Mapping[str, Tensor], suffix: str, rows: int, stream: int, new: int) -> tuple[Tensor, Tensor]:
    """Keys and values of the block without its padding, and the columns that are kept, of one
    stream, as copies.
    """
    own = slice(rows * stream, rows * (stream + 1))
    keys_values = made[f"new_past{suffix}"][:, own, :, :new]
    return keys_values.clone(memory_format=torch.contiguous_format), made[f"new_columns{suffix}"][own].clone()
