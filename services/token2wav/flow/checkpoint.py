"""Reads `flow.pt` without executing code and checks every tensor."""

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory, check_tensors
from services.token2wav.flow.weights import ESTIMATOR, FILE, FlowConfig, expected_tensors
from services.token2wav.inputs.model_files import read_tensors


def read_flow_tensors(
    directory: ModelDirectory, config: FlowConfig, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The tensors on `device`: the estimator's in `dtype`, all others in float32; half-precision
    files are widened.

    The encoder stays float32 (a fortieth of the work): float16 cannot represent its layer-norm
    epsilon of 1e-12, and it scales activations by the square root of its width. Raises ModelError
    naming the file and the tensor.
    """
    path = directory.file(FILE)
    tensors = read_tensors(path)
    check_tensors(path, tensors, expected_tensors(config))
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{path}: tensor {name} has values that are not finite")
    return {
        # Cloned, because a view into the file's storage may start at any address; a new
        # allocation is aligned.
        name: tensor.to(device, dtype if name.startswith(ESTIMATOR) else torch.float32).clone(
            memory_format=torch.contiguous_format
        )
        for name, tensor in tensors.items()
    }
