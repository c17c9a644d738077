"""Work that is always the same, recorded once as CUDA graphs and replayed: the processor no longer
hands thousands of kernels over.

Source: "CUDA Graphs" in PyTorch's notes on CUDA semantics.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

Kind = TypeVar("Kind", bound=Hashable)

WARM_UPS = 3
"""Runs of each kind before it is recorded: libraries choose their algorithms, optimisers make their
state.
"""


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
