"""What a file of tensors holds, without reading the values."""

import math
import pickle
import warnings
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from tools.model.checkpoints.tensor_file import entries


@dataclass(frozen=True)
class TensorSummary:
    """values: of all tensors together, each counted once. dtypes: number of tensors of each type.
    largest: name and shape.
    """

    tensors: int
    values: int
    bytes: int
    dtypes: dict[str, int]
    largest: tuple[str, tuple[int, ...]]


def mapped_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a `torch.save`d mapping, left on the disk where its form allows. Never
    executes what it reads. Raises ModelError.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=_can_be_mapped(path))
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(f"{path}: not a file of tensors: {reason}") from error
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelError(f"{path}: not a mapping of names to tensors")
    return {str(name): value for name, value in content.items()}


def summary_of(tensors: Mapping[str, Tensor]) -> TensorSummary:
    """Of tensors in memory or mapped; storage that two of them share counts once."""
    distinct = {
        (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.numel()): tensor
        for tensor in tensors.values()
    }
    types = Counter(str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values())
    name = max(tensors, key=lambda name: tensors[name].numel(), default="")
    return TensorSummary(
        tensors=len(tensors),
        values=sum(tensor.numel() for tensor in distinct.values()),
        bytes=sum(tensor.numel() * tensor.element_size() for tensor in distinct.values()),
        dtypes=dict(types),
        largest=(name, tuple(tensors[name].shape) if name else ()),
    )


def summary_of_safetensors(path: Path) -> TensorSummary:
    """Of a safetensors file, from its header. Raises ModelError."""
    tensors = entries(path)
    types = Counter(entry.code for entry in tensors.values())
    name = max(tensors, key=lambda name: tensors[name].size, default="")
    return TensorSummary(
        tensors=len(tensors),
        values=sum(math.prod(entry.shape) for entry in tensors.values()),
        bytes=sum(entry.size for entry in tensors.values()),
        dtypes=dict(types),
        largest=(name, tensors[name].shape if name else ()),
    )


def _can_be_mapped(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return all(record.compress_type == zipfile.ZIP_STORED for record in archive.infolist())
