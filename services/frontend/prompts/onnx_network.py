"""ONNX networks of a model directory, run by ONNX Runtime."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from cosyserve.errors import InternalFault, ModelError
from cosyserve.model_directory import ModelDirectory

_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"
_ONLY_ERRORS = 3


@dataclass(frozen=True)
class Port:
    """An input or output. kind: as ONNX Runtime writes it, `tensor(float)`. shape: None for a
    dynamic size.
    """

    kind: str
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.kind} [{', '.join('any' if size is None else str(size) for size in self.shape)}]"


class OnnxNetwork:
    """One ONNX file of the directory. Inputs are passed by position, their names are those of the
    file; the first output is the result.

    Thread-safe. Raises ModelError naming the file when it is missing, malformed, or has another
    signature. threads: per call. device: `cpu`, or `cuda` with or without a number, which falls
    back to the CPU when this build of ONNX Runtime lacks it.
    """

    def __init__(
        self,
        directory: ModelDirectory,
        name: str,
        inputs: Sequence[Port],
        output: Port,
        *,
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        self._path = directory.file(name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ONLY_ERRORS
        try:
            self._session = onnxruntime.InferenceSession(self._path, options, providers=_providers(device))
        except Exception as error:  # the runtime has a class of its own for everything that can be wrong with a file
            raise ModelError(f"{self._path}: not a network that ONNX Runtime can run: {_first_line(error)}") from error
        session_inputs = self._session.get_inputs()
        if len(session_inputs) != len(inputs):
            raise ModelError(f"{self._path}: has {len(session_inputs)} inputs, expected {len(inputs)}")
        for place, (have, want) in enumerate(zip(session_inputs, inputs, strict=True)):
            # A fixed size in place of a dynamic one would refuse all other recordings.
            self._require(
                f"input {place}", have, want, lambda size, wanted: not isinstance(size, int) or size == wanted
            )
        results = self._session.get_outputs()
        self._require(
            "the first output",
            results[0],
            output,
            lambda size, wanted: not isinstance(size, int) or wanted in (None, size),
        )
        self._inputs = [each.name for each in session_inputs]
        self._output = results[0].name

    @property
    def provider(self) -> str:
        """The execution provider: `CPUExecutionProvider` or `CUDAExecutionProvider`."""
        return str(self._session.get_providers()[0])

    def run(self, *inputs: NDArray[Any]) -> NDArray[Any]:
        """Return the first output. Raises InternalFault when the network fails or returns a value
        that is not finite.
        """
        try:
            result: NDArray[Any] = self._session.run([self._output], dict(zip(self._inputs, inputs, strict=True)))[0]
        except Exception as error:
            raise InternalFault(f"{self._path.name} failed: {_first_line(error)}") from error
        if not np.isfinite(result).all():
            raise InternalFault(f"{self._path.name} returned a value that is not finite")
        return result

    def _require(self, what: str, have: Any, want: Port, fits: Callable[[object, int | None], bool]) -> None:
        # An empty shape means that the file does not specify the number of dimensions.
        shaped = not have.shape or (len(have.shape) == len(want.shape) and all(map(fits, have.shape, want.shape)))
        if have.type != want.kind or not shaped:
            raise ModelError(f"{self._path}: {what} is {have.type} {have.shape}, expected {want}")


def available_device() -> str:
    """`cuda` where this build of ONNX Runtime supports it, else `cpu`. A GPU that fails to start
    falls back to the CPU inside ONNX Runtime.
    """
    return "cuda" if _CUDA in onnxruntime.get_available_providers() else "cpu"


def _providers(device: str) -> list[str | tuple[str, dict[str, int]]]:
    wanted = torch.device(device)
    is_there = wanted.type == "cuda" and _CUDA in onnxruntime.get_available_providers()
    return [(_CUDA, {"device_id": wanted.index or 0}), _CPU] if is_there else [_CPU]


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).split(chr(10), 1)[0]}"
