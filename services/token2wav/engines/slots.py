"""Places of execution: a fixed number, each with a stream, contexts and memory of its own, lent to
one thread at a time.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from services.token2wav.engines.runtime import Context, Engine, Shape, Shapes, check_tensors
from services.token2wav.engines.work_queue import Stream, Work, stream_on
from services.token2wav.inputs.cancellation import Cancelled

RUNS_BEFORE_GRAPH = 2
"""Executions at a shape before it is recorded as a CUDA graph: the first ones choose and load what
the later ones only repeat.
"""
MOST_SHAPES = 32
"""Shapes of each engine that a slot keeps contexts, buffers and graphs for. Every block of a
growing sentence is another shape of each engine, so a number that a sentence goes beyond would find
nothing again: up to 40 seconds alone have fewer."""
MOST_BYTES = 1 << 30
"""Of the buffers that a slot keeps, all engines together."""


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
        """Of its buffers."""
        self._scratch = scratch
        """Shared with the slot's other shapes: one execution at a time."""
        self._stream = stream
        self._work: Work = partial(context.enqueue, stream.handle)
        self._runs_left: int | None = RUNS_BEFORE_GRAPH if engine.recordable else None
        for name, tensor in (*inputs.items(), *outputs.items()):
            context.bind(name, tuple(tensor.shape), tensor.data_ptr())

    def run(self) -> None:
        """Queue one execution behind what the slot's stream has been given."""
        if self._runs_left == 0:
            self._work = self._stream.record(self._work) or self._work
            self._runs_left = None
        elif self._runs_left is not None:
            self._runs_left -= 1
        self._work()


class Slot:
    """For the thread that holds it."""

    def __init__(self, device: torch.device, stream: Stream) -> None:
        self._device = device
        self.stream = stream
        self._fixed: OrderedDict[tuple[Engine, tuple[tuple[str, Shape], ...]], BoundEngine] = OrderedDict()
        self._scratch: Tensor = torch.zeros(0, dtype=torch.uint8, device=device)

    def at(self, engine: Engine, inputs: Shapes, outputs: Shapes) -> BoundEngine:
        """The engine at these shapes; made when it was not, or no longer, there."""
        key = (engine, tuple(sorted(inputs.items())))
        found = self._fixed.get(key)
        if found is None:
            found = self._fixed[key] = self._made(engine, inputs, outputs)
            self._make_room(engine)
        self._fixed.move_to_end(key)
        return found

    def forget(self) -> None:
        """Drop contexts, recordings and buffers: after a failure nothing of them is trusted."""
        self._fixed.clear()
        self._scratch = self._scratch.new_zeros(0)

    def _make_room(self, engine: Engine) -> None:
        """What was not used for longest goes, as far as `engine` has too many shapes or all have
        too many bytes; the newest stays.
        """
        going = [key for key in self._fixed if key[0] is engine][:-MOST_SHAPES]
        kept = [key for key in self._fixed if key not in going]
        held = sum(self._fixed[key].bytes for key in kept)
        while len(kept) > 1 and held > MOST_BYTES:
            going.append(kept.pop(0))
            held -= self._fixed[going[-1]].bytes
        if going:
            self.stream.synchronise()  # a context must not go while it executes
            for key in going:
                del self._fixed[key]

    def _made(self, engine: Engine, inputs: Shapes, outputs: Shapes) -> BoundEngine:
        dtypes = {port.name: port.dtype for port in (*engine.inputs, *engine.outputs)}

        def buffers(shapes: Shapes) -> dict[str, Tensor]:
            return {name: torch.zeros(shape, dtype=dtypes[name], device=self._device) for name, shape in shapes.items()}

        given, made = buffers(inputs), buffers(outputs)
        check_tensors(engine, given, made)
        context = engine.context(inputs, self.stream.handle)
        if context.scratch_bytes > self._scratch.numel():
            # Contexts and recordings that hold the address of the one before keep it; doubled, all
            # of them are at most twice the last.
            size = max(context.scratch_bytes, 2 * self._scratch.numel())
            self._scratch = torch.zeros(size, dtype=torch.uint8, device=self._device)
        if context.scratch_bytes:
            context.give_scratch(self._scratch.data_ptr(), self._scratch.numel())
        return BoundEngine(engine, context, given, made, self._scratch, self.stream)


class Slots:
    """count: places there are. Who finds none free waits until one is, first come first served by
    the operating system's lock.

    on_wait: told each time somebody has to wait. stream: makes a place's stream.
    """

    def __init__(
        self,
        device: torch.device,
        count: int,
        on_wait: Callable[[], None] = lambda: None,
        stream: Callable[[torch.device], Stream] = stream_on,
    ) -> None:
        if count < 1:
            raise ValueError(f"{count} slots; at least 1 is needed")
        self.count = count
        self._free = [Slot(device, stream(device)) for _ in range(count)]
        self._changed = threading.Condition()
        self._on_wait = on_wait

    @property
    def free(self) -> int:
        """Places that nobody holds now."""
        with self._changed:
            return len(self._free)

    @contextlib.contextmanager
    def lease(self) -> Iterator[Slot]:
        """A slot, waited for; it comes back whatever happens inside, after its work is done."""
        with self._changed:
            if not self._free:
                self._on_wait()
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
            # of a device that is lost; the first error is the one to tell
            with contextlib.suppress(RuntimeError):
                slot.stream.synchronise()
            slot.forget()
            raise
        finally:
            with self._changed:
                self._free.append(slot)
                self._changed.notify()


def filled(buffers: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy `values` into the buffers of those names, in stream order."""
    for name, value in values.items():
        buffers[name].copy_(value, non_blocking=True)
