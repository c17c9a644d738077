"""Reading `flow.pt`: data only, every tensor checked."""

import warnings
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory, check_tensors
from services.token2wav.flow.weights import ESTIMATOR, FILE, FlowConfig, expected_tensors


def read_flow_tensors(directory: ModelDirectory, config: FlowConfig, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors on `device`: the estimator's in `dtype`, all others float32; half-precision files are widened.

    The encoder stays float32 (a fortieth of the work): its layer-norm epsilon of 1e-12 is no float16 number and it scales activations
    by the square root of its width. Raises ModelError naming the file and the tensor.
    """
    path = directory.file(FILE)
    tensors = _load(path)
    check_tensors(path, tensors, expected_tensors(config))
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ModelError(f"{path}: tensor {name} is {tensor.dtype}, expected a floating-point type")
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{path}: tensor {name} has values that are not finite")
    return {
        # A copy of its own: a view into the file's storage may start anywhere in memory, an allocation is aligned.
        name: tensor.to(device, dtype if name.startswith(ESTIMATOR) else torch.float32).clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }


def _load(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about an unusual pickle protocol: what cannot be read raises
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes the unpickler raise nearly anything
        reason = next(iter(str(error).splitlines()), "")
        raise ModelError(
            f"{path}: not a file of tensors that torch.load(weights_only=True) accepts: {type(error).__name__}: {reason}"
        ) from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: holds a {type(content).__name__}, expected a mapping of names to tensors")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise ModelError(f"{path}: entry {name!r} is a {type(value).__name__}, expected a tensor")
    return content
