"""The estimator's weights in the order and layout in which the programs of a cluster read them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from services.token2wav.gpu.paged_flow.weights import Level, Norm, Product, Transformer

HEADS = 8
_SLICE = 64
"""Input channels of a program in a convolution of more than 256, filled up with zeros."""


def blocks(weight: Tensor) -> Tensor:
    """[N, K] -> its blocks of 8 x 8, [K / 8, N / 8, 8, 8], flat: what the matrix units read."""
    n, k = weight.shape
    return weight.reshape(n // 8, 8, k // 8, 8).permute(2, 0, 1, 3).reshape(-1)


def paired(weight: Tensor) -> Tensor:
    """[N, K] -> rows in the order 0, 2, ..., 14, 1, 3, ..., 15 of each 16. So a thread gets two
    adjacent channels of the result.
    """
    n, k = weight.shape
    return weight.reshape(n // 16, 8, 2, k).transpose(1, 2).reshape(n, k)


def interleaved(weight: Tensor) -> Tensor:
    """[N, K] -> columns in the order 0, 8, 1, 9, ..., 7, 15 of each 16, as attention leaves its
    result.
    """
    n, k = weight.shape
    return weight.reshape(n, k // 16, 2, 8).transpose(2, 3).reshape(n, k)


def of_transformer(layer: Transformer, head: int) -> list[Tensor]:
    """131,072 elements of one head: queries, keys and values, output, the hidden channels that its
    program computes, and what these add.
    """
    width, hidden = slice(64 * head, 64 * head + 64), slice(128 * head, 128 * head + 128)
    joined = layer.qkv.weight.reshape(3, 512, 256)[:, width].reshape(192, 256)
    return [
        blocks(paired(joined)),
        blocks(interleaved(paired(layer.out.weight[:, width]))),
        blocks(paired(layer.widen.weight[hidden])),
        blocks(paired(layer.narrow.weight[:, hidden])),
    ]


def of_convolution(weight: Tensor, head: int) -> list[Tensor]:
    """weight [256, taps, channels]: for each tap 32 input channels, or two times 32 where there are
    more than 256: of a concatenation of two inputs 32 of each, of 320 channels 40 and zeros.
    """
    _, taps, channels = weight.shape
    if channels == 256:
        return [blocks(paired(weight[:, tap, 32 * head : 32 * head + 32])) for tap in range(taps)]
    if channels == 512:
        mine = torch.cat([weight[..., at + 32 * head : at + 32 * head + 32] for at in (0, 256)], dim=2)
    else:
        share = channels // HEADS
        mine = torch.nn.functional.pad(weight[..., share * head : share * (head + 1)], (0, _SLICE - share))
    return [blocks(paired(mine[:, tap, half : half + 32])) for tap in range(taps) for half in (0, 32)]


def packed(levels: Sequence[Level], down_end: Product, up_end: Product, final: Product) -> Tensor:
    """[8, elements]: of each head, in the order of an Euler step."""
    sizes = chunk_sizes(len(levels))
    weight = final.weight
    result = weight.new_empty(HEADS, sum(sizes) // weight.element_size())
    for head, row in enumerate(result):
        torch.cat(_of_head(levels, down_end, up_end, final, head), out=row)
    return result


def _of_head(levels: Sequence[Level], down_end: Product, up_end: Product, final: Product, head: int) -> list[Tensor]:
    parts: list[Tensor] = []
    for at, level in enumerate(levels):
        parts += of_convolution(level.first.weight, head)
        parts += of_convolution(level.shortcut.weight[:, None], head)
        parts += of_convolution(level.second.weight, head)
        for layer in level.transformers:
            parts += of_transformer(layer, head)
        if at == 0:
            parts += of_convolution(down_end.weight, head)
    return parts + of_convolution(up_end.weight, head) + of_convolution(final.weight, head)


def constants(levels: Sequence[Level], down_end: Product, up_end: Product, final: Product) -> Tensor:
    """float32: of each level the biases and norms of its resnet, and of its transformers the biases
    of queries, keys and values, output, widen and narrow; then the three other biases.
    """
    parts: list[Tensor] = []

    def norm(of: Norm) -> list[Tensor]:
        return [of.weight, of.bias]

    for level in levels:
        parts += [level.first.bias, *norm(level.norms[0]), level.second.bias, *norm(level.norms[1])]
        parts.append(level.shortcut.bias)
        for layer in level.transformers:
            parts += [layer.qkv.bias, layer.out.bias, layer.widen.bias, layer.narrow.bias]
    return torch.cat([*parts, down_end.bias, up_end.bias, final.bias]).contiguous()


def chunk_sizes(levels: int) -> list[int]:
    """Bytes of the chunks in which a program takes its weights, in the order of `packed`, and
    zero: 32 or 64 columns of a matrix.
    """
    layer, sizes = [12288] * 8 + [16384] * 10, []
    for level in range(levels):
        first, last = level == 0, level == levels - 1
        sizes += [16384] * (11 if first or last else 7) + 4 * layer
        sizes += [16384] * (3 if first else 6 if last else 0)
    return [*sizes, 0]
