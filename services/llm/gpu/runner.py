"""The runner on a CUDA device: prefill chunks and decode steps captured as CUDA graphs, whose
decisions are read later.

Only `PendingDecisions.read` waits for the device. Every copy uses pinned memory and the order of
one stream.
"""

import contextlib
import itertools
import logging
from collections.abc import Sequence

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources

from services.llm.gpu.decode import DecodeStep, Memory, page_bytes
from services.llm.gpu.layout import PendingDecisions, Stretch
from services.llm.gpu.packing import PackedModel
from services.llm.gpu.prefill import PrefillStep
from services.llm.gpu.state_table import COLUMNS, Column
from services.llm.gpu.tuning import BUCKETS, EXACT

log = logging.getLogger(__name__)
MOST_PENDING = 8
"""Steps whose decisions the host may not have read yet."""
PRIORITY = -1
"""Priority of the stream: decode steps are short and urgent, so they run before the work that other
streams have queued.
"""


class CudaRunner:
    """Implements `Runner`. Captures a graph for each bucket of rows up to `most_rows`, and one for
    a chunk. invariant: see `tuning`.
    """

    def __init__(
        self, model: PackedModel, *, pages: int, slots: int, positions: int, most_rows: int, invariant: bool = False
    ) -> None:
        self.pages, self.slots, self.page_bytes = pages, slots, page_bytes(model)
        self._model, self._memory = model, Memory.reserve(model, pages=pages, slots=slots, positions=positions)
        self._buckets = [bucket for bucket in BUCKETS if bucket < 2 * most_rows]
        self._stream = torch.cuda.Stream(model.device, priority=PRIORITY)  # type: ignore[no-untyped-call]
        self._prefill = PrefillStep(model, self._memory)
        self._steps = {
            bucket: fitting_step(model, self._memory, bucket, invariant=invariant) for bucket in self._buckets
        }
        self._prefill_graph = capture(self._prefill, self._stream)
        self._graphs = {bucket: capture(step, self._stream) for bucket, step in self._steps.items()}
        self._uploaded_rows: dict[int, list[int]] = {}
        self._decisions = itertools.cycle([CudaDecisions(self._buckets[-1]) for _ in range(MOST_PENDING)])

    def row_of(self, table: int, row: int) -> int:
        """As `Runner.row_of`."""
        return self._model.starts[table] + row

    def assign(self, slot: int, pages: Sequence[int], replay: Sequence[int]) -> None:
        """As `Runner.assign`."""
        self._upload(self._memory.pages[slot, : len(pages)], pages)
        if replay:
            self._upload(self._memory.replay[slot, : len(replay)], replay)

    def extend(self, slot: int, first: int, pages: Sequence[int], capacity: int) -> None:
        """As `Runner.extend`."""
        self._upload(self._memory.pages[slot, first : first + len(pages)], pages)
        self._upload(self._memory.state[slot, Column.CAPACITY : Column.CAPACITY + 1], [capacity])

    def prefill(self, stretches: Sequence[Stretch]) -> None:
        """As `Runner.prefill`."""
        with torch.cuda.stream(self._stream):
            self._prefill.load(stretches)
            self._prefill_graph.replay()

    def activate(self, slot: int, state: Sequence[int]) -> None:
        """As `Runner.activate`."""
        self._upload(self._memory.state[slot], [*state, *[0] * (COLUMNS - len(state))])

    def step(self, slots: Sequence[int]) -> PendingDecisions:
        """As `Runner.step`."""
        bucket = next(size for size in self._buckets if size >= len(slots))
        step, rows = self._steps[bucket], [*slots, *[0] * (bucket - len(slots))]
        if self._uploaded_rows.get(bucket) != rows:
            self._upload(step.rows, rows)
            self._uploaded_rows[bucket] = rows
        with torch.cuda.stream(self._stream):
            self._graphs[bucket].replay()
            return next(self._decisions).take(step.decisions, len(slots))

    def close(self) -> None:
        """As `Runner.close`."""
        # raised by a device that has failed and runs nothing
        with contextlib.suppress(RuntimeError):
            self._stream.synchronize()

    def _upload(self, target: Tensor, values: Sequence[int]) -> None:
        with torch.cuda.stream(self._stream):
            target.copy_(torch.tensor(values, dtype=torch.int32).pin_memory(), non_blocking=True)


class CudaDecisions:
    """Implements `PendingDecisions` with a buffer of pinned memory, which later steps reuse."""

    def __init__(self, most_rows: int) -> None:
        self._decisions = torch.empty(most_rows, dtype=torch.int32, pin_memory=True)
        self._done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._count = 0

    def take(self, decisions: Tensor, count: int) -> "CudaDecisions":
        """Enqueue the copy of the decisions on the current stream; `read` returns the first
        `count`.
        """
        self._count = count
        self._decisions[: len(decisions)].copy_(decisions, non_blocking=True)
        self._done.record()
        return self

    def read(self) -> list[int]:
        """As `PendingDecisions.read`."""
        self._done.synchronize()
        return self._decisions[: self._count].tolist()


def fitting_step(model: PackedModel, memory: Memory, bucket: int, *, invariant: bool) -> DecodeStep:
    """The step with the blocks of `tuning`, or with small blocks where the device has less shared
    memory than they need.
    """
    step = DecodeStep(model, memory, bucket, invariant=invariant)
    try:
        step.launch()
    except OutOfResources as error:
        log.warning("blocks for %d rows do not fit this device (%s), small ones are used", bucket, error)
        step = DecodeStep(model, memory, bucket, EXACT)
        step.launch()
    torch.cuda.synchronize(model.device)
    return step


def capture(step: DecodeStep | PrefillStep, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """Capture the kernels of a step as one graph; runs them once before, on the dummy slot, to
    compile them.
    """
    with torch.cuda.stream(stream):
        step.launch()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step.launch()
    return graph
