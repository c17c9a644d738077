"""Execution slots: a fixed number, each with its own stream, contexts and memory, leased to one
thread at a time. A stream is a CUDA stream, or on a CPU nothing, because work has finished on
return.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor

from services.token2wav.engines.runtime import Context, Engine, Shape, Shapes, check_tensors
from services.token2wav.inputs.request import Cancelled

Work = Callable[[], None]
_recording = threading.Lock()


class Stream:
    """Where the work of a slot is queued, for the thread that leases the slot. On a CPU work has
    finished when its call returns.
    """

    handle = 0
    """The stream's handle for a runtime; 0 on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def active(self) -> AbstractContextManager[None]:
        """Within this context torch queues its work on this stream, after the work that the
        caller's stream has received so far.
        """
        return contextlib.nullcontext()

    def record(self, work: Work) -> Work | None:
        """Record the work that `work` queues. Returns a function that queues it again in one call;
        None if recording is not supported.
        """
        return None

    def synchronise(self) -> None:
        """Wait for the queued work."""


class CudaStream(Stream):
    """A separate stream on `device`; recordings are CUDA graphs."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.handle = int(self._stream.cuda_stream)

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
    return CudaStream(device) if device.type == "cuda" else Stream(device)


RUNS_BEFORE_GRAPH = 2
"""Executions at a shape before it is recorded as a CUDA graph: the first ones select and load
kernels, which later ones only repeat.
"""
MOST_SHAPES = 32
"""Shapes of each engine for which a slot caches contexts, buffers and graphs.

Every block of a growing sentence is another shape of each engine, so a sentence with more shapes
than this would never hit the cache. Sentences up to 40 seconds have fewer.
"""
MOST_BYTES = 1 << 30
"""Maximum bytes of the buffers that a slot caches, all engines together."""


class BoundEngine:
    """An engine at one set of shapes in one slot: buffers whose addresses never change, and the
    work that reads and writes them.
    """

    def __init__(
        self,
        engine: Engine,
        context: Context,
        inputs: dict[str, Tensor],
        outputs: dict[str, Tensor],
        scratch: Tensor,
        stream: Stream,
    ) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensor in (*inputs.values(), *outputs.values()))
        """Bytes of its buffers."""
        self._scratch = scratch
        """Shared with the slot's other shapes: one execution at a time."""
        self._stream = stream
        self._work: Work = partial(context.enqueue, stream.handle)
        self._runs_left: int | None = RUNS_BEFORE_GRAPH if engine.recordable else None
        for name, tensor in (*inputs.items(), *outputs.items()):
            context.bind(name, tuple(tensor.shape), tensor.data_ptr())

    def run(self) -> None:
        """Queue one execution on the slot's stream."""
        if self._runs_left == 0:
            self._work = self._stream.record(self._work) or self._work
            self._runs_left = None
        elif self._runs_left is not None:
            self._runs_left -= 1
        self._work()


class Slot:
    """For the thread that leases it."""

    def __init__(self, device: torch.device, stream: Stream) -> None:
        self._device, self.stream = device, stream
        self._bound: OrderedDict[tuple[Engine, tuple[tuple[str, Shape], ...]], BoundEngine] = OrderedDict()
        self._scratch: Tensor = torch.zeros(0, dtype=torch.uint8, device=device)

    def at(self, engine: Engine, inputs: Shapes, outputs: Shapes) -> BoundEngine:
        """The engine at these shapes; bound again if it is not in the cache."""
        key = (engine, tuple(sorted(inputs.items())))
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = self._bind(engine, inputs, outputs)
            self._evict(engine)
        self._bound.move_to_end(key)
        return bound

    def forget(self) -> None:
        """Drop contexts, recordings and buffers, because after a failure none of them can be
        trusted.
        """
        self._bound.clear()
        self._scratch = self._scratch.new_zeros(0)

    def _evict(self, engine: Engine) -> None:
        """Evict the least recently used entries while `engine` has too many shapes or all entries
        have too many bytes; the newest stays.
        """
        evicted = [key for key in self._bound if key[0] is engine][:-MOST_SHAPES]
        remaining = [key for key in self._bound if key not in evicted]
        total = sum(self._bound[key].bytes for key in remaining)
        while len(remaining) > 1 and total > MOST_BYTES:
            evicted.append(remaining.pop(0))
            total -= self._bound[evicted[-1]].bytes
        if evicted:
            self.stream.synchronise()  # a context must not be destroyed while it executes
            for key in evicted:
                del self._bound[key]

    def _bind(self, engine: Engine, inputs: Shapes, outputs: Shapes) -> BoundEngine:
        dtypes = {port.name: port.dtype for port in (*engine.inputs, *engine.outputs)}

        def buffers(shapes: Shapes) -> dict[str, Tensor]:
            return {name: torch.zeros(shape, dtype=dtypes[name], device=self._device) for name, shape in shapes.items()}

        input_buffers, output_buffers = buffers(inputs), buffers(outputs)
        check_tensors(engine, input_buffers, output_buffers)
        context = engine.context(inputs, self.stream.handle)
        if context.scratch_bytes > self._scratch.numel():
            # Contexts and CUDA graphs that use the previous memory keep it alive. The size doubles,
            # so all of them together are at most twice the last one.
            size = max(context.scratch_bytes, 2 * self._scratch.numel())
            self._scratch = torch.zeros(size, dtype=torch.uint8, device=self._device)
        if context.scratch_bytes:
            context.give_scratch(self._scratch.data_ptr(), self._scratch.numel())
        return BoundEngine(engine, context, input_buffers, output_buffers, self._scratch, self.stream)


class Slots:
    """count: number of slots. A thread that finds none free waits, in the order of the operating
    system's lock.

    stream: creates the stream of a slot.
    """

    def __init__(self, device: torch.device, count: int, stream: Callable[[torch.device], Stream] = stream_on) -> None:
        if count < 1:
            raise ValueError(f"{count} slots; at least 1 is needed")
        self.count = count
        self._free = [Slot(device, stream(device)) for _ in range(count)]
        self._changed = threading.Condition()

    @property
    def free(self) -> int:
        """Number of slots that are not leased."""
        with self._changed:
            return len(self._free)

    @contextlib.contextmanager
    def lease(self) -> Iterator[Slot]:
        """Wait for a slot and lease it. It is returned in any case, after its queued work has
        finished.
        """
        with self._changed:
            while not self._free:
                self._changed.wait()
            slot = self._free.pop()
        try:
            with slot.stream.active():
                yield slot
            slot.stream.synchronise()
        except Cancelled:
            slot.stream.synchronise()
            raise
        except BaseException:
            # A lost device raises here too; the first error is the one to report.
            with contextlib.suppress(RuntimeError):
                slot.stream.synchronise()
            slot.forget()
            raise
        finally:
            with self._changed:
                self._free.append(slot)
                self._changed.notify()


def filled(buffers: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy `values` into the buffers with the same names, in stream order."""
    for name, value in values.items():
        buffers[name].copy_(value, non_blocking=True)
