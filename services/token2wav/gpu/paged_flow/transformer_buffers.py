"""Buffers of the estimator's transformers, and how many programs of theirs wait for each other."""

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.unet.weights import UnetConfig
from services.token2wav.gpu.device.launcher import Launcher, Tile, ceil


def barrier_programs(tile: Tile, channels: int) -> int:
    """Programs that share the rows of a feed-forward and wait for each other, see
    `kernels.linear.feed_forward`.
    """
    return 4 * channels // tile.inner


class TransformerBuffers:
    """Buffers of a pass over at most `most` units.

    splits: parts of the keys of one query that are processed in parallel, in passes of at most
    split_units units that split keys. Without splitting, few programs would take long for many
    pages; joining the parts costs an extra launch.

    barrier_units: maximum units of a pass whose feed-forward is one launch of programs that wait
    for each other; see `kernels.linear.feed_forward`.

    by_head: maximum units of such a pass whose attention is fused with the product that follows it,
    if keys are not split; see `kernels.attention.attend_by_head`.
    """

    def __init__(
        self, config: UnetConfig, most: int, dtype: torch.dtype, device: torch.device, launch: Launcher, splits: int,
        split_units: int, barrier_units: int, by_head: int,
    ) -> None:  # fmt: skip
        each, inner, heads = ROWS * CHUNK_FRAMES, config.estimator_heads * config.head_width, config.estimator_heads
        rows, widest, barrier_rows = most * each, splits * min(most, split_units) * each, max(barrier_units, 1) * each
        programs = max(barrier_programs(tile, config.channels) for _, tile in launch.rules("feed forward"))

        def zeros(*shape: int, kind: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self.config, self.barrier_units, self.by_head = config, barrier_units, min(by_head, barrier_units)
        self.queries, self.attended = zeros(rows, inner), zeros(rows, inner)
        self.splits, self.norms = zeros(widest, inner), zeros(widest, heads, kind=torch.float32)
        self.wide = zeros(rows, 4 * config.channels)
        self.heads = zeros(heads, max(self.by_head, 1) * each, config.channels)
        self.partial = zeros(programs, barrier_rows, config.channels, kind=torch.float32)
        self.row_tiles = ceil(barrier_rows, 16)
        """Maximum row tiles of a feed-forward with a grid barrier."""
        layers = (config.middle + 2) * config.transformers
        self.counters = zeros(EULER_STEPS * layers * self.row_tiles, kind=torch.int32)
