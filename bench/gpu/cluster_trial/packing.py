"""The weights of a transformer layer in the order and layout of `transformers.cu`."""

import torch
from torch import Tensor

HEADS = 8


def blocks(weight: Tensor) -> Tensor:
    """[N, K] -> blocks of 8 x 8, [K / 8, N / 8, 8, 8], flat."""
    n, k = weight.shape
    return weight.reshape(n // 8, 8, k // 8, 8).permute(2, 0, 1, 3).reshape(-1)


def paired(weight: Tensor) -> Tensor:
    """Row i and row i + 8 of each 16 become channels 2 i and 2 i + 1."""
    n, k = weight.shape
    return weight.reshape(n // 16, 8, 2, k).transpose(1, 2).reshape(n, k)


def interleaved(weight: Tensor) -> Tensor:
    """Columns of each 16: 0, 8, 1, 9, ..."""
    n, k = weight.shape
    return weight.reshape(n, k // 16, 2, 8).transpose(2, 3).reshape(n, k)


def packed(qkv: Tensor, out: Tensor, widen: Tensor, narrow: Tensor) -> Tensor:
    """[3 * 512, 256], [256, 512], [1024, 256], [256, 1024] -> [8, 131072]."""
    each = []
    for head in range(HEADS):
        mine = slice(64 * head, 64 * head + 64)
        joined = qkv.reshape(3, 512, 256)[:, mine].reshape(192, 256)
        hidden = slice(128 * head, 128 * head + 128)
        each.append(
            torch.cat(
                [
                    blocks(paired(joined)),
                    blocks(interleaved(paired(out[:, mine]))),
                    blocks(paired(widen[hidden])),
                    blocks(paired(narrow[:, hidden])),
                ]
            )
        )
    return torch.stack(each).contiguous()
