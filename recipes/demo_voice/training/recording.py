"""Steps that are recorded once as CUDA graphs and replayed, so that the processor no longer hands
over thousands of kernels, which take longer to start one by one than to run.

Source: "CUDA Graphs" in PyTorch's notes on CUDA semantics.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import torch
from torch import Tensor

Kind = TypeVar("Kind", bound=Hashable)


class RecordingFailed(RuntimeError):
    """Steps can only go on one by one. The device's default random numbers may be unusable from
    here on: what draws them begins again in a new process, without graphs.
    """


class Replayed(Generic[Kind]):
    """A function (kind, tensors) -> tensor whose work on the device depends on the kind and the
    shapes alone.

    Whatever else it reads or writes must be tensors that stay where they are, or `forget` be called
    when they moved.
    """

    def __init__(
        self,
        function: Callable[[Kind, Sequence[Tensor]], Tensor],
        warm_ups: int,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """warm_ups: runs of each kind before it is recorded: libraries choose their algorithms,
        optimisers make their state. stream: on which all calls are made, where it is not the
        default one.
        """
        self._function, self._warm_ups, self._stream = function, warm_ups, stream
        # One pool for all: what a graph leaves behind is copied out before another is replayed.
        self._pool = torch.cuda.graph_pool_handle()
        self._runs: Counter[Kind] = Counter()
        self._records: dict[Kind, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}

    def __call__(self, kind: Kind, inputs: Sequence[Tensor]) -> Tensor:
        """What the function gives for `inputs`, whose shapes are always the same for a kind. Raises
        RecordingFailed.
        """
        self._runs[kind] += 1
        if self._runs[kind] <= self._warm_ups:
            return self._function(kind, inputs)
        if kind not in self._records:
            self._records[kind] = self._record(kind, inputs)
        graph, places, outputs = self._records[kind]
        for place, value in zip(places, inputs, strict=True):
            place.copy_(value)
        graph.replay()
        return outputs.clone()

    def forget(self) -> None:
        """Begin again: recordings know tensors by address."""
        self._runs.clear()
        self._records.clear()

    def _record(self, kind: Kind, inputs: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]:
        places = [value.clone() for value in inputs]
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                outputs = self._function(kind, places)
        except Exception as error:
            torch.cuda.set_stream(current)
            with suppress(RuntimeError):  # what the failed recording left pending
                torch.cuda.synchronize()
            # Ending the recording fails as well, which hides the reason.
            reason = error.__context__ or error
            raise RecordingFailed(f"{kind}: {type(reason).__name__}: {reason}") from error
        return graph, places, outputs
