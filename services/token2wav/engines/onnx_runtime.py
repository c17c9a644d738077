"""Runs graphs with ONNX Runtime: on the CPU, and on CUDA if the wheel for it is installed. Tensors
are passed by address, as with TensorRT.

onnxruntime is imported late, because only this engine needs it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cosyserve.errors import InternalFault, SettingsError
from services.token2wav.engines.runtime import Port, Shape, Shapes
from services.token2wav.engines.shapes import Profile, covering

_TYPES: dict[str, tuple[torch.dtype, Any]] = {
    "tensor(float)": (torch.float32, np.float32),
    "tensor(float16)": (torch.float16, np.float16),
    "tensor(int32)": (torch.int32, np.int32),
    "tensor(bool)": (torch.bool, np.bool_),
}


def onnx_library() -> Any:
    """The module. Raises SettingsError that names the package to install."""
    try:
        import onnxruntime
    except ImportError as error:
        raise SettingsError("backend onnxruntime needs the package onnxruntime: pip install onnxruntime") from error
    return onnxruntime


class OnnxEngine:
    """One graph. built: profiles of shapes that it may be called with, None: any. Raises
    SettingsError without the library or its CUDA support, and for a graph without kernels on this
    device.
    """

    def __init__(
        self, name: str, path: Path, device: torch.device, threads: int = 1, built: Sequence[Profile] | None = None
    ) -> None:
        onnxruntime = onnx_library()
        provider = "CUDAExecutionProvider" if device.type == "cuda" else "CPUExecutionProvider"
        if provider not in onnxruntime.get_available_providers():
            raise SettingsError(
                f"onnxruntime {onnxruntime.__version__} has no {provider}: pip install onnxruntime-gpu in its place"
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        self.name, self.recordable = name, False
        self._device = device
        self._built = None if built is None else list(built)
        settings = {"device_id": str(device.index or 0), "use_tf32": "0"} if device.type == "cuda" else {}
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=[(provider, settings)])
        except Exception as error:  # the library documents no common base class of its errors
            why = str(error).splitlines()[0][:200]
            raise SettingsError(
                f"onnxruntime {onnxruntime.__version__} cannot run the {name} graph on {device.type}: {why}; "
                "choose another engine_precision: fp32 runs everywhere, bf16 and fp8 are for TensorRT"
            ) from error
        self._numpy = {
            entry.name: _TYPES[entry.type][1] for entry in (*self._session.get_inputs(), *self._session.get_outputs())
        }
        self.inputs = [_port(entry) for entry in self._session.get_inputs()]
        self.outputs = [_port(entry) for entry in self._session.get_outputs()]
        # it says nothing and would compute on the CPU
        if provider not in self._session.get_providers():
            raise SettingsError(
                f"onnxruntime {onnxruntime.__version__} cannot set up its {provider} here; its own lines say why"
            )

    def refusal(self, shapes: Shapes) -> str:
        """See `Engine`. A graph takes any length; the range is the one for which engines are
        built.
        """
        if self._built is None or covering(self._built, shapes) is not None:
            return ""
        return f"no profile covers {dict(shapes)}"

    def context(self, shapes: Shapes, stream: int) -> "_OnnxContext":
        """See `Engine`."""
        return _OnnxContext(self.name, self._session, self._numpy, self._device)


class _OnnxContext:
    scratch_bytes = 0

    def __init__(self, name: str, session: Any, types: dict[str, Any], device: torch.device) -> None:
        self._name, self._session, self._types, self._device = name, session, types, device
        self._binding = session.io_binding()
        self._inputs = {entry.name for entry in session.get_inputs()}

    def bind(self, name: str, shape: Shape, address: int) -> None:
        put = self._binding.bind_input if name in self._inputs else self._binding.bind_output
        put(name, self._device.type, self._device.index or 0, self._types[name], list(shape), address)

    def give_scratch(self, address: int, size: int) -> None:
        """The library allocates its own scratch memory."""

    def enqueue(self, stream: int) -> None:
        if self._device.type == "cuda":  # it works on a stream of its own
            torch.cuda.current_stream(self._device).synchronize()
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:  # the library documents no common base class of its errors
            raise InternalFault(f"engine {self._name}: {str(error).splitlines()[0][:200]}") from error


def _port(entry: Any) -> Port:
    return Port(
        entry.name, _TYPES[entry.type][0], tuple(length if isinstance(length, int) else None for length in entry.shape)
    )
