"""Finite scalar quantisation in CosyVoice2's layout: eight ternary digits, id = sum of level_i *
3^i, levels 0 to 2.

A tokenizer of few codes uses the lowest digits; the others stand at their middle level in the ids
of the model directory.
"""

import torch
from torch import Tensor

DIGITS_OF_AN_ID = 8
REACH = 0.9990000128746033
"""Keeps a saturated tanh on its level; the published network's constant."""


def count(digits: int) -> int:
    """How many codes there are."""
    return int(3**digits)


def first_id(digits: int) -> int:
    """Speech token id of code 0; the id of a code is first_id + code."""
    return sum(3**place for place in range(digits, DIGITS_OF_AN_ID))


def bounded(values: Tensor) -> Tensor:
    """float32, any real numbers to (-1, 1); the nearest whole number is the digit's level less
    one.
    """
    return torch.tanh(values) * REACH


def codes_of(bound: Tensor) -> Tensor:
    """[..., digits] in (-1, 1) -> int64 [...]."""
    return ((torch.round(bound).long() + 1) * _weights(bound.shape[-1], bound.device)).sum(-1)


def levels_of(codes: Tensor, digits: int) -> Tensor:
    """int64 [...] -> float32 [..., digits]: -1, 0 or 1, what `codes_of` was given after
    rounding.
    """
    return (torch.div(codes[..., None], _weights(digits, codes.device), rounding_mode="floor") % 3 - 1).float()


def rounded(bound: Tensor, noise: float = 0.0) -> Tensor:
    """The nearest levels, with the gradient of `bound`; uniform noise of that width is added
    before.
    """
    if noise:
        bound = bound + noise * (torch.rand_like(bound) - 0.5)
    return bound + (torch.round(bound).clamp(-1, 1) - bound).detach()


def _weights(digits: int, device: torch.device) -> Tensor:
    return 3 ** torch.arange(digits, device=device)
