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
from typing import Any, ClassVar

import torch
from torch import Tensor

from recipes.demo_voice.training.progress import Schedule

CHECKPOINT = "checkpoint.pt"
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


class TrainingState:
    """What a checkpoint holds: parameters, their average, the clock, and whatever else has
    `state_dict` and `load_state_dict`, such as optimisers, by name.

    KEPT: attributes of a training that its checkpoints hold as they are, tensors and plain values.
    """

    KEPT: ClassVar[tuple[str, ...]] = ()

    def __init__(self, parameters: Mapping[str, Tensor], schedule: Schedule, *, decay: float, **others: Any) -> None:
        self.parameters, self.schedule = dict(parameters), schedule
        self.average = Average(self.parameters, decay)
        self._others = others

    def descend(self, optimiser: torch.optim.Optimizer, loss: Tensor, rate: float, largest_gradient: float) -> None:
        """One step of `optimiser` at a learning rate of `rate` against the gradient of `loss`,
        whose norm is made no larger than `largest_gradient`.
        """
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), largest_gradient)
        optimiser.step()
        self.schedule.step += 1
        self.average.update(self.schedule.step)

    def state(self) -> dict[str, Any]:
        """For `load`: tensors and plain values."""
        return {
            "parameters": {name: tensor.detach() for name, tensor in self.parameters.items()},
            "average": self.average.values,
            "step": self.schedule.step,
            "seconds": self.schedule.seconds,
            **{name: other.state_dict() for name, other in self._others.items()},
            **{name: getattr(self, name) for name in self.KEPT},
        }

    @torch.no_grad()
    def load(self, content: Mapping[str, Any]) -> None:
        """Go on from `state`. Raises ValueError unless names and sizes are those of this
        training.
        """
        if not content.keys() >= {"parameters", "average", *self._others, *self.KEPT}:
            raise ValueError("not a checkpoint of this training")
        for kept, present in ((content["parameters"], self.parameters), (content["average"], self.average.values)):
            require_names(kept, present)
            for name, tensor in kept.items():
                if tensor.shape != present[name].shape:
                    expected = list(present[name].shape)
                    raise ValueError(f"{name} is {list(tensor.shape)} in the checkpoint, expected {expected}")
                present[name].copy_(tensor)
        for name, other in self._others.items():
            other.load_state_dict(content[name])
        for name in self.KEPT:
            setattr(self, name, content[name])


def begun(folder: Path, minutes: float, steps: int, device: torch.device) -> tuple[Schedule, dict[str, Any] | None]:
    """The clock of a training whose results are in `folder`, which is made, and the checkpoint in
    it that the training has to load; None for a new one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CHECKPOINT
    if not path.exists():
        return Schedule(minutes, steps), None
    content = load(path, device)
    return Schedule(minutes, steps, content["seconds"], content["step"]), content


def by_decay(parameters: Mapping[str, Tensor], decay: float) -> list[dict[str, Any]]:
    """Parameter groups of an optimiser: only matrices lose weight."""
    matrices = [tensor for tensor in parameters.values() if tensor.dim() > 1]
    others = [tensor for tensor in parameters.values() if tensor.dim() <= 1]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


def save(path: Path, content: Mapping[str, Any]) -> None:
    """`torch.save` that is never seen half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    torch.save(dict(content), partial)
    partial.replace(path)


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `save` wrote: tensors and plain values only."""
    content: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    return content


def pack(source: Path, target: Path) -> None:
    """Copy what `save` wrote, its records deflated, the same bytes each time. `torch.load` reads it
    as before, but cannot map it.
    """
    with zipfile.ZipFile(source) as plain, zipfile.ZipFile(target, "w") as packed:
        for name in plain.namelist():
            packed.writestr(zipfile.ZipInfo(name), plain.read(name), zipfile.ZIP_DEFLATED, compresslevel=9)


def halved(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For files that are shipped: float16 on the CPU."""
    return {name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in parameters.items()}


def require_names(names: Iterable[str], expected: Iterable[str]) -> None:
    """Raises ValueError unless both name the same tensors."""
    missing, extra = sorted(set(expected) - set(names)), sorted(set(names) - set(expected))
    if missing or extra:
        raise ValueError(f"missing tensors {missing[:5]}, unexpected tensors {extra[:5]}")
