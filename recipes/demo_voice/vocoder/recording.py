"""Steps that are recorded once as CUDA graphs and replayed, so that the processor no longer hands
over thousands of kernels: an optimiser that never waits for the device, and the recording.

Source: "CUDA Graphs" in PyTorch's notes on CUDA semantics.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Kind = TypeVar("Kind", bound=Hashable)

WARM_UPS = 3
"""Runs of each kind before it is recorded: libraries choose their algorithms, optimisers make their
state.
"""


class Descent:
    """AdamW that bounds gradients, for one group of parameters. A step whose gradient is not finite
    changes nothing and is counted in `skipped`.

    Nothing waits for the device and every number that changes is a tensor on it, so a step can be
    recorded in a CUDA graph.
    """

    def __init__(self, parameters: Sequence[Tensor], *, largest_norm: float) -> None:
        self.parameters = list(parameters)
        device = self.parameters[0].device
        self._rate = torch.zeros((), device=device)
        self._recordable = device.type == "cuda"
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=self._rate, betas=(0.8, 0.99), weight_decay=0.0, fused=True, capturable=self._recordable
        )
        # torch warns once when such an optimiser steps outside of a graph; its first steps do.
        self.optimiser._warned_capturable_if_run_uncaptured = True
        self._largest = largest_norm
        self.norm = torch.zeros((), device=device)
        self.skipped = torch.zeros((), device=device)

    def step(self, gradients: Sequence[Tensor], rate: Tensor) -> None:
        """gradients: of the parameters, in their order. rate: learning rate, [] on the device."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = (
                gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)
            )
        self.norm = torch.nn.utils.get_total_norm(gradients)
        broken = (~torch.isfinite(self.norm)).float()
        # The fused kernel divides by the one and does nothing at all when the other is 1: as
        # torch.amp.GradScaler hands them over.
        self.optimiser.grad_scale = (self.norm / self._largest).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimiser.found_inf = broken  # type: ignore[attr-defined]
        self._rate.copy_(rate)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.skipped += broken

    def state_dict(self) -> dict[str, Any]:
        """For `load_state_dict`."""
        return self.optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.optimiser.load_state_dict(state)
        self.optimiser.param_groups[0] |= {"lr": self._rate, "capturable": self._recordable}


class RecordingFailed(RuntimeError):
    """The device's random numbers may be unusable from here on: begin again in a new process,
    without graphs.
    """


class Replayed(Generic[Kind]):
    """A function (kind, tensors) -> tensor whose work on the device depends on the kind and the
    shapes alone.

    Whatever else it reads or writes must be tensors that stay where they are. All calls must be
    made inside `torch.cuda.stream(stream)`.
    """

    def __init__(self, function: Callable[[Kind, Sequence[Tensor]], Tensor], device: torch.device) -> None:
        self._function = function
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own
        self._runs: dict[Kind, int] = {}
        self._records: dict[Kind, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}
        # One pool for all: what a graph leaves behind is copied out before another is replayed.
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, kind: Kind, inputs: Sequence[Tensor]) -> Tensor:
        """What the function gives for `inputs`, whose shapes are always the same for a kind. Raises
        RecordingFailed.
        """
        runs = self._runs[kind] = self._runs.get(kind, 0) + 1
        if runs <= WARM_UPS:
            return self._function(kind, inputs)
        if kind not in self._records:
            self._records[kind] = self._record(kind, inputs)
        graph, places, outputs = self._records[kind]
        for place, value in zip(places, inputs, strict=True):
            place.copy_(value)
        graph.replay()
        return outputs.clone()

    def _record(self, kind: Kind, inputs: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]:
        places = [value.clone() for value in inputs]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self.stream):
                outputs = self._function(kind, places)
        except Exception as error:
            raise RecordingFailed(f"{kind}: {type(error).__name__}: {error}") from error
        return graph, places, outputs
