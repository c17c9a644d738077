"""On a GPU: a slot records a CUDA graph after the first executions, and the graph reads and writes
the same buffers.
"""

import ctypes
import threading

import pytest
import torch

from services.token2wav.engines.runtime import Port, Shape, Shapes
from services.token2wav.engines.slots import RUNS_BEFORE_GRAPH, Slots

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
_DEVICE_TO_DEVICE = 3


class Copying:
    """y = x by cudaMemcpyAsync: the smallest work that goes by address and stream, and that a graph
    can record.
    """

    name, recordable = "copying", True
    inputs = (Port("x", torch.float32, (None,)),)
    outputs = (Port("y", torch.float32, (None,)),)

    def __init__(self) -> None:
        self.enqueued = 0
        self.streams: set[int] = set()

    def refusal(self, shapes: Shapes) -> str:
        return ""

    def context(self, shapes: Shapes, stream: int) -> "CopyingContext":
        return CopyingContext(self)


class CopyingContext:
    scratch_bytes = 1024

    def __init__(self, engine: Copying) -> None:
        self._engine = engine
        self._library = ctypes.CDLL(f"libcudart.so.{(torch.version.cuda or '12').split('.')[0]}")
        self._places: dict[str, tuple[Shape, int]] = {}

    def bind(self, name: str, shape: Shape, address: int) -> None:
        self._places[name] = (shape, address)

    def give_scratch(self, address: int, size: int) -> None:
        assert address
        assert size >= self.scratch_bytes

    def enqueue(self, stream: int) -> None:
        self._engine.enqueued += 1
        self._engine.streams.add(stream)
        (shape, x), (_, y) = self._places["x"], self._places["y"]
        place = ctypes.c_void_p
        assert (
            self._library.cudaMemcpyAsync(
                place(y), place(x), ctypes.c_size_t(4 * shape[0]), _DEVICE_TO_DEVICE, place(stream)
            )
            == 0
        )


def once(slots: Slots, engine: Copying, size: int, value: float) -> float:
    with slots.lease() as slot:
        fixed = slot.at(engine, {"x": (size,)}, {"y": (size,)})
        fixed.inputs["x"].fill_(value)
        fixed.run()
        made = fixed.outputs["y"].clone()
    return float(made.sum()) / size


def test_a_shape_is_recorded_once_and_replayed() -> None:
    slots, engine = Slots(torch.device("cuda"), 1), Copying()
    for value in range(10):
        assert once(slots, engine, 1000, float(value)) == value
    assert engine.enqueued == RUNS_BEFORE_GRAPH + 1
    for value in range(10):
        for size, each in ((77, value), (1000, -value)):
            assert once(slots, engine, size, float(each)) == each
    assert engine.enqueued == 2 * (RUNS_BEFORE_GRAPH + 1)


def test_slots_work_concurrently_on_separate_streams() -> None:
    slots, engine, made = Slots(torch.device("cuda"), 3), Copying(), []

    def work(at: int) -> None:
        made.extend(once(slots, engine, 5000 + at, float(10 * at + value)) == 10 * at + value for value in range(20))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert made == [True] * 120
    assert 0 not in engine.streams
    assert slots.free == 3
