"""The table of a batch: which grid blocks are computed, and where their data is. Static in size, so
that CUDA graphs can read it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
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
    """One grid block of one stream.

    pages: of the stream's blocks from the first to this one, whose page is the last. tokens: int64
    [1..25]. ahead: int64 [0..3]. speaker: float32 [80] on the device. condition: float32 [50, 80]
    on the device, None for zeros. A batch may contain several blocks of one stream in any order,
    because every layer writes all before it reads any.
    """

    pages: Sequence[int]
    tokens: Tensor
    ahead: Tensor
    speaker: Tensor
    condition: Tensor | None = field(default=None)

    @property
    def position(self) -> int:
        """Blocks before this one."""
        return len(self.pages) - 1


class UnitTable:
    """Device tensors for at most `most` units, filled from pinned memory by one copy.

    own, before: page of the block and of the previous one, -1 for none. counts: pages up to the
    block's own. frames, tokens: how many of the block are real. position: frames before it. ids,
    known: tokens and look-ahead. pages: [most, TABLE].
    """

    def __init__(self, most: int, device: torch.device) -> None:
        self.most = most = -(-most // _ALIGNED) * _ALIGNED
        sizes = {
            "own": 1,
            "before": 1,
            "counts": 1,
            "frames": 1,
            "tokens": 1,
            "position": 1,
            "ids": IDS,
            "known": IDS,
            "pages": TABLE,
        }
        self._device = torch.zeros(most * sum(sizes.values()), dtype=torch.int32, device=device)
        parts = self._device.split_with_sizes([most * size for size in sizes.values()])
        self.fields = dict(zip(sizes, parts, strict=True))
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
            "own": DUMMY_PAGE,
            "before": -1,
            "counts": 1,
            "frames": CHUNK_FRAMES,
            "tokens": CHUNK_TOKENS,
            "position": 0,
            "ids": 0,
            "known": 0,
        }.items():
            views[name][:size] = value
        views["pages"][len(units) : size, 0] = DUMMY_PAGE
        for at, unit in enumerate(units):
            pages, count, ahead = len(unit.pages), unit.tokens.numel(), unit.ahead.numel()
            views["pages"][at, :pages] = unit.pages
            views["own"][at], views["counts"][at] = unit.pages[-1], pages
            views["before"][at] = unit.pages[-2] if pages > 1 else -1
            views["tokens"][at], views["frames"][at] = count, MEL_FRAMES_PER_TOKEN * count
            views["position"][at] = CHUNK_FRAMES * unit.position
            views["ids"][at, :count] = unit.tokens.numpy()
            views["ids"][at, count : count + ahead] = unit.ahead.numpy()
            views["known"][at, : count + ahead] = 1
        self._staging.send()
        torch.stack([unit.speaker for unit in units], out=self.speaker[: len(units)])
        self.condition[: len(units)].zero_()
        for at, unit in enumerate(units):
            if unit.condition is not None:
                self.condition[at].copy_(unit.condition)
