"""Weights lie where the programs of a cluster read them, in the order in which they take them."""

from dataclasses import replace

import torch
from torch import Tensor

from bench.real_size import PUBLISHED_FLOW
from cosyserve.host.recommendation import CLUSTERS_MIB
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.layers import Tensors
from services.token2wav.gpu.clusters.packing import HEADS, chunk_sizes, packed
from services.token2wav.gpu.paged_flow.weights import Level, convolution
from tests.unit.token2wav.gpu.small_flow import random_tensors

SHALLOW = replace(PUBLISHED_FLOW, encoder_layers=1, encoder_feed_forward=64, middle=1)


def read(chunk: Tensor, columns: int) -> Tensor:
    """[channels, columns] as a program's matrix units read a chunk: in blocks of 8 x 8, whose rows
    a thread gets as pairs of channels.
    """
    blocks = chunk.reshape(columns // 8, -1, 8, 8)
    rows = blocks.permute(1, 2, 0, 3).reshape(-1, columns)
    of_channel = [16 * (channel // 16) + 8 * (channel % 2) + channel % 16 // 2 for channel in range(len(rows))]
    return rows[of_channel]


class Program:
    """The weights of one head, in the order in which its program takes them."""

    def __init__(self, weights: Tensor, sizes: list[int]) -> None:
        self._chunks = list(torch.split(weights, [size // 2 for size in sizes[:-1]]))

    def product(self, count: int, columns: int) -> Tensor:
        """[channels, count * columns]: the next `count` chunks of so many columns."""
        taken, self._chunks = self._chunks[:count], self._chunks[count:]
        return torch.cat([read(chunk, columns) for chunk in taken], dim=1)

    def convolution(self, taps: int, slices: int) -> Tensor:
        """[channels, taps, 32 * slices]."""
        return self.product(taps * slices, 32).reshape(-1, taps, 32 * slices)

    @property
    def left(self) -> int:
        """Chunks that are left."""
        return len(self._chunks)


def slices(weight: Tensor, head: int) -> Tensor:
    """The input channels [256, taps, 32 or 64] of a head's program."""
    channels = weight.shape[-1]
    if channels == 320:
        return torch.nn.functional.pad(weight[..., 40 * head : 40 * head + 40], (0, 24))
    return torch.cat([weight[..., at + 32 * head : at + 32 * head + 32] for at in range(0, channels, 256)], dim=-1)


def test_programs_take_the_estimators_weights_in_the_order_of_the_step() -> None:
    tensors = Tensors(random_tensors(SHALLOW)).within(ESTIMATOR[:-1])
    times = torch.zeros(1, 4 * SHALLOW.channels)
    names = ("down_blocks.0", "mid_blocks.0", "up_blocks.0")
    levels = [Level(tensors.within(name), SHALLOW, times, torch.bfloat16) for name in names]
    places = ("down_blocks.0.2", "up_blocks.0.2", "final_block.block.0")
    ends = [convolution(tensors.within(place), torch.bfloat16) for place in places]
    weights = packed(levels, *ends)
    sizes = chunk_sizes(len(levels))
    assert weights.shape == (8, sum(sizes) // 2)
    # Attention leaves channels c and c + 8 next to each other.
    beside = torch.tensor([16 * block + half * 8 + c for block in range(4) for c in range(8) for half in (0, 1)])
    for head in (0, 5):
        program = Program(weights[head], sizes)
        for at, level in enumerate(levels):
            parts = 2 if at in (0, len(levels) - 1) else 1
            assert program.convolution(3, parts).equal(slices(level.first.weight, head))
            assert program.convolution(1, parts).equal(slices(level.shortcut.weight[:, None], head))
            assert program.convolution(3, 1).equal(slices(level.second.weight, head))
            for layer in level.transformers:
                mine, hidden = slice(64 * head, 64 * head + 64), slice(128 * head, 128 * head + 128)
                heads = layer.qkv.weight.reshape(3, 512, 256)[:, mine].reshape(192, 256)
                assert program.product(8, 32).equal(heads)
                assert program.product(2, 32).equal(layer.out.weight[:, mine][:, beside])
                assert program.product(4, 64).equal(layer.widen.weight[hidden])
                assert program.product(4, 32).equal(layer.narrow.weight[:, hidden])
            of_level = ends[:1] if at == 0 else ends[1:] if at == len(levels) - 1 else ()
            for end in of_level:
                assert program.convolution(3, 1).equal(slices(end.weight, head))
        assert program.left == 0


def test_the_recommended_settings_count_what_they_take() -> None:
    levels = 2 + PUBLISHED_FLOW.middle
    assert CLUSTERS_MIB - 1 < HEADS * sum(chunk_sizes(levels)) / 2**20 <= CLUSTERS_MIB
