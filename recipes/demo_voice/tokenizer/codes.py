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


def digits_of(codes: int) -> int:
    """The number of digits that gives so many codes. Raises ValueError when there is none."""
    for digits in range(1, DIGITS_OF_AN_ID + 1):
        if count(digits) == codes:
            return digits
    raise ValueError(f"{codes} codes: not a power of three up to 3^{DIGITS_OF_AN_ID}")


def first_id(digits: int) -> int:
    """Speech token id of code 0; the id of a code is first_id + code."""
    return sum(3**place for place in range(digits, DIGITS_OF_AN_ID))


def known_ids(digits: int, known: Tensor) -> Tensor:
    """Speech token ids whose rows in a table of another tokenizer a table for `digits` digits can
    begin with, int64 [3^digits]: the code's own id, or, where the other one has fewer digits, the
    id with the further digits at their middle level.

    known: bool [at least 3^8], the ids that the other tokenizer puts out. Raises ValueError unless
    they are those of a number of digits.
    """
    ids = known[: 3**DIGITS_OF_AN_ID].nonzero()[:, 0]
    kept = digits_of(len(ids))
    if not torch.equal(ids, first_id(kept) + torch.arange(count(kept), device=ids.device)):
        raise ValueError("the speech token ids in use are not those of a tokenizer of this recipe")
    own = first_id(digits) + torch.arange(count(digits), device=known.device)
    return torch.where(known[own], own, first_id(kept) + torch.arange(count(digits), device=known.device) % count(kept))


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
