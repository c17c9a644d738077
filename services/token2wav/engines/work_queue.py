"""Where the work of a slot is queued: a CUDA stream, or on a CPU nothing, because work has finished
on return.
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
    """For the thread that leases the slot."""

    @property
    def handle(self) -> int:
        """The stream's handle for a runtime; 0 on a CPU."""

    def active(self) -> AbstractContextManager[None]:
        """Within this context torch queues its work on this stream, after the work that the
        caller's stream has received so far.
        """

    def record(self, work: Work) -> Work | None:
        """Record the work that `work` queues. Returns a function that queues it again in one call;
        None if recording is not supported.
        """

    def synchronise(self) -> None:
        """Wait for the queued work."""


class CpuStream:
    """Work has finished when its call returns."""

    handle = 0

    def active(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def record(self, work: Work) -> None:
        return None

    def synchronise(self) -> None:
        """There is never anything to wait for."""


class CudaStream:
    """A separate stream on `device`; recordings are CUDA graphs."""

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
        # Threads of other slots continue meanwhile. But the start of a recording synchronises the
        # device, which would invalidate another recording in progress, hence the lock.
        with _recording, torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay

    def synchronise(self) -> None:
        self._stream.synchronize()


def stream_on(device: torch.device) -> Stream:
    """A new stream on `device`."""
    return CudaStream(device) if device.type == "cuda" else CpuStream()
