"""Which mels can become sound at all."""

import torch
from torch import Tensor

LARGEST = 88.0
"""Mels are natural logarithms of magnitudes: beyond this there is no such float32. Speech lies
between -12 and 3.
"""


def sane(mels: Tensor) -> Tensor:
    """mels [n, ...] -> bool [n]: whether all values of a row are numbers that stand for a
    magnitude. Not finite: they do not.
    """
    return (mels.abs() <= LARGEST).flatten(1).all(dim=1)


def all_sane(mels: Tensor) -> bool:
    """The same for all rows together. Waits for the device."""
    return bool(torch.all(sane(mels)))
