"""The interface to the runtimes that execute graphs: tensors are passed by address, and work is
queued on a stream.

Shapes and types are checked here before the call, because the runtime would report a mismatch
without naming the tensor, or not at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cosyserve.errors import InternalFault

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Port:
    """An input or output of a graph; None in `shape` is a free length."""

    name: str
    dtype: torch.dtype
    shape: tuple[int | None, ...]

    def takes(self, shape: Shape) -> bool:
        """Whether rank and fixed lengths agree."""
        return len(shape) == len(self.shape) and all(
            mine in (None, given) for mine, given in zip(self.shape, shape, strict=True)
        )


class Context(Protocol):
    """One execution at a time, at one set of shapes."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of device memory that an execution needs in addition to inputs and outputs."""

    def bind(self, name: str, shape: Shape, address: int) -> None:
        """Set the address of a tensor. Raises InternalFault if the runtime refuses."""

    def give_scratch(self, address: int, size: int) -> None:
        """Set the memory for `scratch_bytes`; nothing else may use it during an execution."""

    def enqueue(self, stream: int) -> None:
        """Queue one execution on a CUDA stream (0 on a CPU, where it has finished on return).
        Raises InternalFault if the runtime refuses.
        """


class Engine(Protocol):
    """A loaded graph: immutable, may be shared. Inputs and outputs as in the file."""

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> Sequence[Port]: ...

    @property
    def outputs(self) -> Sequence[Port]: ...

    @property
    def recordable(self) -> bool:
        """Whether a CUDA graph can record an execution, that is, whether all its work goes to the
        given stream.
        """

    def refusal(self, shapes: Shapes) -> str:
        """Why these input shapes are outside the supported profiles; empty if they are inside."""

    def context(self, shapes: Shapes, stream: int) -> Context:
        """For executions at these input shapes. Raises InternalFault if the runtime refuses."""


def check_tensors(engine: Engine, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
    """Raise InternalFault unless exactly the engine's tensors are given: with the right types,
    ranks and fixed lengths, contiguous, on one device, and within a supported profile.
    """
    for kind, ports, given in (("input", engine.inputs, inputs), ("output", engine.outputs, outputs)):
        names = {port.name for port in ports}
        if names != given.keys():
            raise InternalFault(
                f"engine {engine.name}: {kind}s are {', '.join(sorted(names))}; given are {', '.join(sorted(given))}"
            )
        for port in ports:
            tensor = given[port.name]
            shape = tuple(tensor.shape)
            if not port.takes(shape):
                raise InternalFault(
                    f"engine {engine.name}: {kind} {port.name} is {list(shape)}, built for {list(port.shape)} (None: "
                    "any)"
                )
            if tensor.dtype != port.dtype:
                raise InternalFault(
                    f"engine {engine.name}: {kind} {port.name} is {tensor.dtype}, built for {port.dtype}"
                )
            if not tensor.is_contiguous():
                raise InternalFault(f"engine {engine.name}: {kind} {port.name} is not contiguous")
    if len({tensor.device for tensor in (*inputs.values(), *outputs.values())}) > 1:
        raise InternalFault(f"engine {engine.name}: its tensors are on several devices")
    refusal = engine.refusal({name: tuple(tensor.shape) for name, tensor in inputs.items()})
    if refusal:
        raise InternalFault(f"engine {engine.name}: {refusal}")
