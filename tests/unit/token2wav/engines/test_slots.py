"""Execution slots are leased to one thread at a time, waited for, and returned in any case; and the
checks before a call.
"""

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from cosyserve.errors import InternalFault
from services.token2wav.engines import slots as slots_module
from services.token2wav.engines.runtime import Port, Shape, Shapes, check_tensors
from services.token2wav.engines.shapes import USUAL_TOKENS, padded
from services.token2wav.engines.slots import MOST_SHAPES, RUNS_BEFORE_GRAPH, BoundEngine, Slot, Slots
from services.token2wav.inputs.request import Cancelled

CPU = torch.device("cpu")


class Doubling:
    """y = 2 x, with a floor of 4 columns, through the addresses it was given."""

    name, recordable = "doubling", True
    inputs = (Port("x", torch.float32, (None, 3)), Port("on", torch.bool, (None,)))
    outputs = (Port("y", torch.float32, (None, 3)),)

    def __init__(self, scratch: int = 0) -> None:
        self.contexts: list[DoublingContext] = []
        self._scratch = scratch

    def refusal(self, shapes: Shapes) -> str:
        return f"{shapes['x'][0]} rows are too many" if shapes["x"][0] > 100 else ""

    def context(self, shapes: Shapes, stream: int) -> "DoublingContext":
        self.contexts.append(DoublingContext(self._scratch * shapes["x"][0]))
        return self.contexts[-1]


class DoublingContext:
    def __init__(self, scratch: int) -> None:
        self.scratch_bytes, self.scratch, self.broken = scratch, (0, 0), False
        self.bound: dict[str, tuple[Shape, int]] = {}
        self.streams: list[int] = []

    def bind(self, name: str, shape: Shape, address: int) -> None:
        self.bound[name] = (shape, address)

    def give_scratch(self, address: int, size: int) -> None:
        assert size >= self.scratch_bytes
        self.scratch = (address, size)

    def enqueue(self, stream: int) -> None:
        self.streams.append(stream)
        if self.broken:
            raise InternalFault("engine doubling: refused")
        (shape, x), (_, y) = self.bound["x"], self.bound["y"]
        read, written = (ctypes.cast(address, ctypes.POINTER(ctypes.c_float)) for address in (x, y))
        for at in range(shape[0] * shape[1]):
            written[at] = 2 * read[at]


def bound(slot: Slot, engine: Doubling, rows: int) -> BoundEngine:
    return slot.at(engine, {"x": (rows, 3), "on": (rows,)}, {"y": (rows, 3)})


def run(slots: Slots, engine: Doubling, rows: int, value: float = 1.0) -> Tensor:
    with slots.lease() as slot:
        fixed = bound(slot, engine, rows)
        fixed.inputs["x"].fill_(value)
        fixed.run()
        return fixed.outputs["y"].clone()


def test_results_come_through_addresses() -> None:
    assert run(Slots(CPU, 1), Doubling(), 2, 1.5).tolist() == [[3.0] * 3] * 2


def test_many_threads_share_few_slots() -> None:
    slots, engine, made = Slots(CPU, 2), Doubling(), []
    threads = [
        threading.Thread(target=lambda at=at: made.append((at, run(slots, engine, 1, float(at))))) for at in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted((at, float(result[0, 0])) for at, result in made) == [(at, 2.0 * at) for at in range(24)]
    assert slots.free == 2
    assert len(engine.contexts) <= 2


@pytest.mark.parametrize("error", [RuntimeError("a device is lost"), Cancelled("enough"), KeyboardInterrupt()])
def test_a_slot_comes_back_after_an_error(error: BaseException) -> None:
    slots, engine = Slots(CPU, 1), Doubling()
    run(slots, engine, 2)
    with pytest.raises(type(error)), slots.lease():
        raise error
    assert slots.free == 1
    assert run(slots, engine, 2).sum() == 12
    # After a mere cancellation contexts are as good as before; after a failure none is trusted.
    assert len(engine.contexts) == (1 if isinstance(error, Cancelled) else 2)


def test_an_execution_that_fails_leaves_a_working_slot() -> None:
    slots, engine = Slots(CPU, 1), Doubling()
    run(slots, engine, 2)
    engine.contexts[0].broken = True
    with pytest.raises(InternalFault, match="refused"):
        run(slots, engine, 2)
    assert run(slots, engine, 2).sum() == 12


def test_buffers_stay_where_they_are_and_old_shapes_make_room() -> None:
    slots, engine = Slots(CPU, 1), Doubling()
    run(slots, engine, 1)
    first = dict(engine.contexts[0].bound)
    run(slots, engine, 1)
    assert [context.bound for context in engine.contexts] == [first]
    for rows in range(2, MOST_SHAPES + 2):
        run(slots, engine, rows)
    before = len(engine.contexts)
    run(slots, engine, 2)
    assert len(engine.contexts) == before
    run(slots, engine, 1)
    assert len(engine.contexts) == before + 1


def test_a_sentence_of_usual_length_finds_its_shapes_again() -> None:
    """Each block is another length to every engine; the next sentence has the same lengths and
    replays the recorded graphs.
    """
    slots, engines = Slots(CPU, 1, stream=Queue), [Doubling() for _ in range(4)]
    blocks = sorted({padded(tokens) for tokens in range(1, USUAL_TOKENS + 1)})
    for _ in range(RUNS_BEFORE_GRAPH + 1):
        for rows in range(1, len(blocks) + 1):
            for engine in engines:
                run(slots, engine, rows)
    assert [len(engine.contexts) for engine in engines] == [len(blocks)] * 4
    assert queues[0].events.count("replay") == 4 * len(blocks)


def test_what_goes_has_ended_and_large_buffers_make_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    slots, engine = Slots(CPU, 1, stream=Queue), Doubling()
    # a row: three floats in, three out, a byte
    monkeypatch.setattr(slots_module, "MOST_BYTES", 3 * 25)
    with slots.lease() as slot:
        for rows in (1, 2):
            bound(slot, engine, rows)
        assert queues[0].events == ["behind the caller"]
        bound(slot, engine, 3)
        assert queues[0].events == ["behind the caller", "synchronise"]
    run(slots, engine, 3)
    assert len(engine.contexts) == 3
    run(slots, engine, 9)
    run(slots, engine, 9)
    assert len(engine.contexts) == 4, "more than there is room for stays while it is the only one"


def test_scratch_grows_and_what_holds_the_old_keeps_it() -> None:
    slots, engine = Slots(CPU, 1), Doubling(scratch=100)
    for rows in (1, 2, 3, 1):
        run(slots, engine, rows)
    assert [context.scratch[1] for context in engine.contexts] == [100, 200, 400]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": torch.zeros(2, 4)}, "input x is [2, 4], built for [None, 3]"),
        ({"x": torch.zeros(6)}, "input x is [6], built for"),
        ({"x": torch.zeros(2, 3, dtype=torch.float64)}, "input x is torch.float64, built for torch.float32"),
        ({"x": torch.zeros(3, 2).T}, "input x is not contiguous"),
        ({"x": torch.zeros(101, 3), "on": torch.ones(101, dtype=torch.bool)}, "101 rows are too many"),
        ({"on": None}, "inputs are on, x; given are x"),
        ({"more": torch.zeros(1)}, "inputs are on, x; given are more, on, x"),
        ({"x": torch.zeros(2, 3, device="meta")}, "several devices"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_call(change: dict[str, Tensor | None], words: str) -> None:
    given = {"x": torch.zeros(2, 3), "on": torch.ones(2, dtype=torch.bool)} | change
    inputs = {name: tensor for name, tensor in given.items() if tensor is not None}
    with pytest.raises(InternalFault) as caught:
        check_tensors(Doubling(), inputs, {"y": torch.zeros(2, 3)})
    assert words in str(caught.value)


class Queue:
    """A stream for tests: it has its own handle and records everything that happens on it, in
    order.
    """

    handles = iter(range(1000, 2000))

    def __init__(self, device: torch.device) -> None:
        self.handle, self.events = next(self.handles), list[str]()
        queues.append(self)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        self.events.append("behind the caller")
        yield

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        self.events.append("record")

        def replay() -> None:
            self.events.append("replay")
            work()

        return replay

    def synchronise(self) -> None:
        self.events.append("synchronise")


queues: list[Queue] = []


@pytest.fixture(autouse=True)
def _no_queues() -> None:
    queues.clear()


def test_a_shape_is_recorded_once_and_then_replayed() -> None:
    slots, engine = Slots(CPU, 1, stream=Queue), Doubling()
    for value in range(6):
        assert run(slots, engine, 2, float(value)).sum() == 12 * value
    (queue,) = queues
    plain, recorded = ["behind the caller", "synchronise"], ["behind the caller", "replay", "synchronise"]
    assert queue.events == [
        *plain * RUNS_BEFORE_GRAPH,
        "behind the caller",
        "record",
        "replay",
        "synchronise",
        *recorded * 3,
    ]
    assert set(engine.contexts[0].streams) == {queue.handle}
    queue.events.clear()
    run(slots, engine, 3)
    assert queue.events == plain, "another shape has a recording of its own"


def test_what_cannot_be_recorded_never_is() -> None:
    slots, engine = Slots(CPU, 1, stream=Queue), Doubling()
    engine.recordable = False
    for _ in range(5):
        run(slots, engine, 2)
    assert "record" not in queues[0].events


def test_every_slot_has_its_stream() -> None:
    slots, engine = Slots(CPU, 3, stream=Queue), Doubling()
    with slots.lease() as first, slots.lease() as second, slots.lease() as third:
        handles = [slot.stream.handle for slot in (first, second, third)]
        for slot in (first, second, third):
            bound(slot, engine, 1).run()
    assert len(set(handles)) == 3
    assert [set(context.streams) for context in engine.contexts] == [{handle} for handle in handles]


def test_no_slots_is_no_setting() -> None:
    with pytest.raises(ValueError, match="0 slots"):
        Slots(CPU, 0)
