"""Where the work of one slot is queued: nowhere on a CPU, where it is done on return, or a CUDA
stream.
"""

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch

Work = Callable[[], None]
_recording = threading.Lock()


class Stream(Protocol):
    """For the thread that holds the slot."""

    @property
    def handle(self) -> int:
        """The stream as a runtime takes it; 0 on a CPU."""

    def active(self) -> AbstractContextManager[None]:
        """Inside, torch queues its work here too, behind what the caller's stream was given so
        far.
        """

    def record(self, work: Work) -> Work | None:
        """What `work` queues, as something that queues it again at once; None where there is no
        such thing.
        """

    def synchronise(self) -> None:
        """Wait for what was queued."""


class CpuStream:
    """Work is done when its call returns."""

    handle = 0

    def active(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def record(self, work: Work) -> None:
        return None

    def synchronise(self) -> None:
        """Nothing is ever left to do."""


class CudaStream:
    """A stream of its own on `device`; recordings are CUDA graphs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def handle(self) -> int:
        return int(self._stream.cuda_stream)

    def active(self) -> AbstractContextManager[None]:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        inside: AbstractContextManager[None] = torch.cuda.stream(self._stream)
        return inside

    def record(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        # The other slots' threads go on meanwhile, but beginning a recording synchronises the
        # device, which ends another that is under way.
        with _recording, torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay

    def synchronise(self) -> None:
        self._stream.synchronize()


def stream_on(device: torch.device) -> Stream:
    """A new one."""
    return CudaStream(device) if device.type == "cuda" else CpuStream()
