"""Reads `torch.save`d tensor files without executing code; errors name the file and what is wrong
with it.
"""

import warnings
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.errors import ModelError


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a `torch.save`d dictionary by name, on the CPU, all floating point. Raises
    ModelError naming file and entry.
    """
    try:
        with warnings.catch_warnings():
            # The warning is about an unusual pickle protocol; a file that cannot be read raises.
            warnings.simplefilter("ignore", UserWarning)
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # for a damaged file the unpickler raises nearly any class
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise ModelError(
            f"{path}: not a file of tensors that torch.load(weights_only=True) accepts: {type(error).__name__}: "
            f"{reason}"
        ) from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: holds a {type(content).__name__}, expected a mapping of names to tensors")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise ModelError(f"{path}: entry {name!r} is a {type(value).__name__}, expected a tensor")
        if not value.is_floating_point():
            raise ModelError(f"{path}: tensor {name} is {value.dtype}, expected a floating-point type")
    return content
