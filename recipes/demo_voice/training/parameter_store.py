"""Parameters under the names of the published checkpoints: the services' networks are built from
exactly such a mapping.

The networks of `services` hold no parameters of their own; they are put together from named
tensors. Training keeps the tensors here, builds the network again from them for each step
(dictionary look-ups, no copies) and lets gradients flow back.
"""

import math
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

Initialiser = Callable[[str, tuple[int, ...]], Tensor]


def make(shapes: Mapping[str, tuple[int, ...]], initialise: Initialiser, device: torch.device) -> dict[str, Tensor]:
    """Leaf tensors that want gradients, float32, one per shape."""
    return {name: initialise(name, shape).to(device, torch.float32).requires_grad_() for name, shape in shapes.items()}


def uniform_by_inputs(shape: tuple[int, ...]) -> Tensor:
    """Uniform within 1 / sqrt(inputs of one output), torch's habit for linear and convolution
    weights [out, in, ...].
    """
    bound = 1.0 / math.sqrt(math.prod(shape[1:]))
    return torch.empty(shape).uniform_(-bound, bound)


class Average:
    """Exponential moving average of parameters; early steps count more."""

    def __init__(self, parameters: Mapping[str, Tensor], decay: float) -> None:
        self._decay = decay
        self._live = dict(parameters)
        self.values = {name: tensor.detach().clone() for name, tensor in parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Call once after each optimiser step; `step` counts from 1."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.values.values()), [tensor.detach() for tensor in self._live.values()], 1 - decay)

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        for name, tensor in values.items():
            self.values[name].copy_(tensor)


def save(path: Path, content: Mapping[str, object]) -> None:
    """`torch.save` that is never seen half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    torch.save(dict(content), partial)
    partial.replace(path)


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, object]:
    """What `save` wrote: tensors and plain values only."""
    content: dict[str, object] = torch.load(path, map_location=device, weights_only=True)
    return content


def pack(source: Path, target: Path) -> None:
    """Copy what `save` wrote, its records deflated, the same bytes each time. `torch.load` reads it
    as before, but cannot map it.
    """
    with zipfile.ZipFile(source) as plain, zipfile.ZipFile(target, "w") as packed:
        for name in plain.namelist():
            packed.writestr(zipfile.ZipInfo(name), plain.read(name), zipfile.ZIP_DEFLATED, compresslevel=9)


@torch.no_grad()
def restore(parameters: Mapping[str, Tensor], average: Average, content: Mapping[str, object]) -> None:
    """Put a checkpoint's "parameters" and "average" in place of the present ones. Raises ValueError
    unless names and sizes agree.
    """
    values, averaged = content["parameters"], content["average"]
    if not isinstance(values, dict) or not isinstance(averaged, dict):
        raise ValueError("not a checkpoint of this training")
    require_names(values, parameters)
    for name, tensor in values.items():
        if tensor.shape != parameters[name].shape:
            raise ValueError(
                f"{name} is {list(tensor.shape)} in the checkpoint, expected {list(parameters[name].shape)}"
            )
        parameters[name].copy_(tensor)
    average.load(averaged)


def halved(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For files that are shipped: float16 on the CPU."""
    return {name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in parameters.items()}


def require_names(names: Iterable[str], expected: Iterable[str]) -> None:
    """Raises ValueError unless both name the same tensors."""
    missing, extra = sorted(set(expected) - set(names)), sorted(set(names) - set(expected))
    if missing or extra:
        raise ValueError(f"missing tensors {missing[:5]}, unexpected tensors {extra[:5]}")
