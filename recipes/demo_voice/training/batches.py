"""Utterances of nearly equal length together, and their frames out of one long tensor without a
loop.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor


def by_length(
    members: Sequence[int], lengths: Sequence[int], budget: int, rng: np.random.Generator, *, most: int = 512
) -> list[list[int]]:
    """`members` in batches whose (count x longest length) stays within `budget`, in random order.

    lengths: indexed by member. most: largest batch. Equal lengths are shuffled by a jitter of up to
    a sixth.
    """
    jittered = np.array([lengths[member] for member in members]) * (1 + rng.uniform(0, 1 / 6, len(members)))
    order = [members[place] for place in np.argsort(jittered, kind="stable").tolist()]
    batches: list[list[int]] = []
    current: list[int] = []
    longest = 0
    for member in order:
        longest_with = max(longest, lengths[member])
        if current and (longest_with * (len(current) + 1) > budget or len(current) >= most):
            batches.append(current)
            current, longest_with = [], lengths[member]
        current.append(member)
        longest = longest_with
    if current:
        batches.append(current)
    return [batches[place] for place in rng.permutation(len(batches))]


def endless(
    members: Sequence[int], lengths: Sequence[int], budget: int, rng: np.random.Generator, *, most: int = 512
) -> Iterator[list[int]]:
    """Epoch after epoch of `by_length`."""
    while True:
        yield from by_length(members, lengths, budget, rng, most=most)


def gather(flat: Tensor, starts: Tensor, count: int) -> Tensor:
    """Rows starts[b] .. starts[b] + count - 1 of `flat` [total, ...] -> [batch, count, ...]; rows
    past the end repeat the last.
    """
    places = starts[:, None] + torch.arange(count, device=starts.device)
    return flat[places.clamp(max=flat.shape[0] - 1)]
