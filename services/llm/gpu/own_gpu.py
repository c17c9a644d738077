"""Whether kernels of other processes can run beside those of this one.

Programs that stay on the device and wait for each other need it for themselves: beside kernels of
another process that wait as well, such as token2wav's feed-forward, each may hold places that the
other needs, and neither ends. Without NVIDIA's Multi-Process Service (MPS) kernels of two processes
never run together; each process has the whole GPU in its time slice.
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from cosyserve.engines.cuda_kernels import Driver, DriverError
from cosyserve.engines.kernel_cache import Unsuitable

_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_USUAL_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - where a daemon of the machine listens
_MPS_ENABLED = 133
"""CU_DEVICE_ATTRIBUTE_MPS_ENABLED."""


def require_own_gpu(driver: Driver, device: int, environ: Mapping[str, str] = os.environ) -> None:
    """Raises Unsuitable where the contexts of this process share the GPU through MPS. device: its
    number in CUDA.
    """
    pipes = Path(environ.get(_PIPES) or _USUAL_PIPES)
    if _enabled(driver, device) or _listens(pipes):
        raise Unsuitable(
            "COSYSERVE_LLM_GPU_DECODE=one_launch needs a GPU of its own, this process shares it by MPS, whose daemon "
            f"listens in {pipes}: give it a GPU of its own without MPS ({_PIPES} that names an empty directory), or "
            "set COSYSERVE_LLM_GPU_DECODE=launches"
        )


def _listens(pipes: Path) -> bool:
    """Whether a daemon listens there; one of another user, whose directory is closed, counts."""
    try:
        return (pipes / "control").exists()
    except OSError:
        return True


def _enabled(driver: Driver, device: int) -> bool:
    """What the driver says; False where it is too old to know."""
    handle, value = ctypes.c_int(), ctypes.c_int()
    try:
        driver("cuDeviceGet", ctypes.byref(handle), device)
        driver("cuDeviceGetAttribute", ctypes.byref(value), _MPS_ENABLED, handle)
    except DriverError:
        return False
    return value.value != 0
