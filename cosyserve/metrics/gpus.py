"""What the driver says about the GPUs of this process, by NVIDIA's management library (NVML), which
comes with the driver and answers within a millisecond; nvidia-smi is a process that asks it.
"""

import ctypes
import os
from collections.abc import Callable
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass

from cosyserve.metrics import names
from cosyserve.metrics.instruments import Labels, gauge

_LIBRARY = "libnvidia-ml.so.1"
VISIBLE = "CUDA_VISIBLE_DEVICES"


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


@dataclass(frozen=True)
class GpuState:
    """Bytes in use by all processes, and of the GPU; the share of the driver's last sampling period
    (a sixth of a second to a second) in which it computed, None where the driver does not say, as
    for a part of a GPU (MIG).
    """

    used_bytes: int
    bytes: int
    utilisation: float | None


class Gpus:
    """Those that CUDA_VISIBLE_DEVICES leaves to this process, by what the variable calls them: a
    number or a UUID; without it by their number.
    """

    def __init__(self, library: ctypes.CDLL, visible: str | None) -> None:
        """visible: value of CUDA_VISIBLE_DEVICES."""
        self._library = library
        self._handles: dict[str, c_void_p] = {}
        if library.nvmlInit_v2():
            return
        count = c_uint()
        library.nvmlDeviceGetCount_v2(byref(count))
        named = [str(place) for place in range(count.value)] if visible is None else visible.split(",")
        for name in filter(None, (name.strip() for name in named)):
            handle = c_void_p()
            failed = (
                library.nvmlDeviceGetHandleByIndex_v2(int(name), byref(handle))
                if name.isdecimal()
                else library.nvmlDeviceGetHandleByUUID(c_char_p(name.encode()), byref(handle))
            )
            if not failed:
                self._handles[name] = handle

    def __bool__(self) -> bool:
        return bool(self._handles)

    def states(self) -> dict[str, GpuState]:
        """Of every GPU that answers, by its name."""
        found = {}
        for name, handle in self._handles.items():
            memory, busy = _Memory(), _Utilisation()
            if self._library.nvmlDeviceGetMemoryInfo(handle, byref(memory)):
                continue
            unknown = self._library.nvmlDeviceGetUtilizationRates(handle, byref(busy))
            found[name] = GpuState(memory.used, memory.total, None if unknown else busy.gpu / 100)
        return found


def watch() -> Gpus | None:
    """Let the metrics read the GPUs of this process as long as the result lives; None if it has
    none.
    """
    try:
        gpus = Gpus(ctypes.CDLL(_LIBRARY), os.environ.get(VISIBLE))
    except (OSError, AttributeError):  # no driver, or one without these functions
        return None
    if not gpus:
        return None
    gauge(names.GPU_MEMORY).watch(gpus, lambda each: _by_gpu(each, lambda state: state.used_bytes))
    gauge(names.GPU_MEMORY_LIMIT).watch(gpus, lambda each: _by_gpu(each, lambda state: state.bytes))
    gauge(names.GPU_UTILISATION).watch(gpus, lambda each: _by_gpu(each, lambda state: state.utilisation))
    return gpus


def _by_gpu(gpus: Gpus, read: Callable[[GpuState], float | None]) -> list[tuple[Labels, float]]:
    values = ((name, read(state)) for name, state in gpus.states().items())
    return [({"gpu": name}, value) for name, value in values if value is not None]
