"""The table of a batch: which grid blocks are computed, and where their data is. Static in size, so
that CUDA graphs can read it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, LOOKAHEAD_TOKENS, MAX_FLOW_FRAMES, MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.gpu.device.host_staging import HostToDevice

TABLE = MAX_FLOW_FRAMES // CHUNK_FRAMES
"""Pages of the longest sentence."""
IDS = CHUNK_TOKENS + LOOKAHEAD_TOKENS
_ALIGNED = 32
"""Table sizes are multiples of this, because kernels are specialised on the alignment of their
arguments, which should not vary.
"""
DUMMY_PAGE = 0
"""Padding units write to this page."""


@dataclass(eq=False)
class Unit:
    """One grid block of one stream, or 25 tokens of a prompt that is one block.

    pages: that the estimator sees, in order. own: which of them is the unit's; those before it
    belong to the blocks before. front_pages: the same for what is in front of the estimator, from
    the stream's first block on; None: in the same pages. tokens: int64 [1..25]. ahead: int64
    [0..3]. speaker: float32 [80] on the device. condition: float32 [50, 80] on the device, None for
    zeros. skipped: tokens by which the stream's first unit is shorter than others; its tokens lie
    at its end, behind padding. A batch may contain several blocks of one stream in any order,
    because every layer writes all before it reads any.
    """

    pages: Sequence[int]
    tokens: Tensor
    ahead: Tensor
    speaker: Tensor
    condition: Tensor | None = field(default=None)
    own: int = -1
    front_pages: Sequence[int] | None = None
    skipped: int = 0

    @property
    def position(self) -> int:
        """Blocks before this one."""
        return self.own % len(self.seen_in_front)

    @property
    def seen_in_front(self) -> Sequence[int]:
        """`front_pages`, or where they are."""
        return self.pages if self.front_pages is None else self.front_pages

    @property
    def first(self) -> int:
        """Tokens of padding in front of its own."""
        return 0 if self.position else self.skipped

    @property
    def frames(self) -> slice:
        """Which of the unit's 50 frames are real."""
        begin = MEL_FRAMES_PER_TOKEN * self.first
        return slice(begin, begin + MEL_FRAMES_PER_TOKEN * self.tokens.numel())


class UnitTable:
    """Device tensors for at most `most` units, filled from pinned memory by one copy.

    own, before: page of the block and of the previous one, -1 for none. pages: [most, TABLE], that
    the unit sees; counts: how many; frames, tokens: how much of the last one is real, and skipped:
    how many tokens the first one begins without. place: blocks before it, position: frames before
    it. previous: the unit of the same batch that is the previous block, -1 for none. ids, known:
    tokens and look-ahead.

    front: own, before, counts and pages of the network in front of the estimator. front_apart:
    whether these differ from the estimator's.
    """

    def __init__(self, most: int, device: torch.device, *, front_apart: bool = False) -> None:
        self.most = most = -(-most // _ALIGNED) * _ALIGNED
        sizes = dict.fromkeys(("own", "before", "counts", "frames", "tokens", "skipped", "place", "position"), 1)
        sizes |= {"previous": 1, "ids": IDS, "known": IDS, "pages": TABLE}
        self._front_apart, shared = front_apart, ("own", "before", "counts", "pages")
        if front_apart:
            sizes |= {f"front {name}": sizes[name] for name in shared}
        self._device = torch.zeros(most * sum(sizes.values()), dtype=torch.int32, device=device)
        parts = self._device.split_with_sizes([most * size for size in sizes.values()])
        self.fields = dict(zip(sizes, parts, strict=True))
        self.front = {name: self.fields[f"front {name}" if front_apart else name] for name in shared}
        self._staging = HostToDevice(self._device)
        self._shapes = {name: (most, size) for name, size in sizes.items()}
        self.speaker = torch.zeros(most, MEL_BINS, device=device)
        self.condition = torch.zeros(most, CHUNK_FRAMES, MEL_BINS, device=device)

    def __getitem__(self, name: str) -> Tensor:
        return self.fields[name]

    def fill(self, units: Sequence[Unit], size: int) -> None:
        """Make `units` the batch, padded to `size` with units that write only to the dummy page."""
        host, views, at = self._staging.begin(), {}, 0
        for name, shape in self._shapes.items():
            views[name] = host[at : at + shape[0] * shape[1]].reshape(shape)
            at += shape[0] * shape[1]
        for name, value in {
            "frames": CHUNK_FRAMES,
            "tokens": CHUNK_TOKENS,
            "skipped": 0,
            "place": 0,
            "position": 0,
            "previous": -1,
            "ids": 0,
            "known": 0,
        }.items():
            views[name][:size] = value
        sides = [("", [unit.pages for unit in units])]
        if self._front_apart:
            sides.append(("front ", [unit.seen_in_front for unit in units]))
        for side, pages in sides:
            _fill_pages(views, side, pages, [unit.own for unit in units], size)
        where = {unit.pages[unit.own]: at for at, unit in enumerate(units)}
        for at, unit in enumerate(units):
            count, first, ahead = unit.tokens.numel(), unit.first, unit.ahead.numel()
            if unit.own in (-1, len(unit.pages) - 1):
                views["tokens"][at], views["frames"][at] = first + count, MEL_FRAMES_PER_TOKEN * (first + count)
            views["skipped"][at], views["place"][at] = unit.skipped, unit.position
            views["position"][at] = CHUNK_FRAMES * unit.position - MEL_FRAMES_PER_TOKEN * unit.skipped
            views["previous"][at] = where.get(views["before"][at].item(), -1)
            views["ids"][at, first : first + count] = unit.tokens.numpy()
            views["ids"][at, first + count : first + count + ahead] = unit.ahead.numpy()
            views["known"][at, first : first + count + ahead] = 1
        self._staging.send()
        torch.stack([unit.speaker for unit in units], out=self.speaker[: len(units)])
        self.condition[: len(units)].zero_()
        for at, unit in enumerate(units):
            if unit.condition is not None:
                self.condition[at].copy_(unit.condition)


def _fill_pages(
    views: dict[str, NDArray[np.int32]], side: str, pages: Sequence[Sequence[int]], own: Sequence[int], size: int
) -> None:
    """Which pages units see; side: before the names of the fields."""
    views[f"{side}own"][:size], views[f"{side}before"][:size], views[f"{side}counts"][:size] = DUMMY_PAGE, -1, 1
    views[f"{side}pages"][len(pages) : size, 0] = DUMMY_PAGE
    for at, (seen, mine) in enumerate(zip(pages, own, strict=True)):
        place = mine % len(seen)
        views[f"{side}pages"][at, : len(seen)] = seen
        views[f"{side}own"][at], views[f"{side}counts"][at] = seen[place], len(seen)
        views[f"{side}before"][at] = seen[place - 1] if place else -1
