"""The runner on a CUDA device, and the engine on it: prefill chunks and decode steps captured as
CUDA graphs, whose decisions are read later.

Only `ReadDecisions` waits for the device. Every copy uses pinned memory and the order of
one stream.
"""

import contextlib
import dataclasses
import itertools
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources

from cosyserve.errors import SettingsError
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits
from services.llm.gpu.decode import DecodeStep, Memory, page_bytes
from services.llm.gpu.layout import PAGE, ReadDecisions, Runner, Stretch
from services.llm.gpu.one_launch import OneLaunchStep
from services.llm.gpu.packing import PackedModel, pack
from services.llm.gpu.prefill import PrefillStep
from services.llm.gpu.slots import COLUMNS, Column, pages_for
from services.llm.gpu.stepper import FusedStepper
from services.llm.gpu.tuning import BUCKETS, EXACT

log = logging.getLogger(__name__)
MOST_PENDING = 8
"""Steps whose decisions the host may not have read yet."""
PRIORITY = -1
"""Priority of the stream: decode steps are short and urgent, so they run before the work that other
streams have queued.
"""
DEFAULT_BUDGET = 4 << 30
"""Bytes of keys and values where the settings set no limit."""
SWITCH_SECONDS = 0.0005
"""Python's thread switch interval."""


class CudaRunner(Runner):
    """Captures a graph for each bucket of rows up to `most_rows`, and one for
    a chunk. invariant: see `tuning`. one_launch: a step of one row is an `OneLaunchStep`, which
    raises Unsuitable where it cannot run.
    """

    def __init__(
        self,
        model: PackedModel,
        *,
        pages: int,
        slots: int,
        positions: int,
        most_rows: int,
        invariant: bool = False,
        one_launch: bool = False,
    ) -> None:
        self.pages, self.slots, self.page_bytes = pages, slots, page_bytes(model)
        self._model, self._memory = model, Memory.reserve(model, pages=pages, slots=slots, positions=positions)
        self._buckets = [bucket for bucket in BUCKETS if bucket < 2 * most_rows]
        self._stream = torch.cuda.Stream(model.device, priority=PRIORITY)  # type: ignore[no-untyped-call]
        self._prefill = PrefillStep(model, self._memory)
        self._steps = {
            bucket: OneLaunchStep(model, self._memory)
            if one_launch and bucket == 1
            else fitting_step(model, self._memory, bucket, invariant=invariant)
            for bucket in self._buckets
        }
        self._prefill_graph = capture(self._prefill, self._stream)
        self._graphs = {bucket: capture(step, self._stream) for bucket, step in self._steps.items()}
        self._uploaded_rows: dict[int, list[int]] = {}
        self._decisions = itertools.cycle([CudaDecisions(self._buckets[-1]) for _ in range(MOST_PENDING)])

    def row_of(self, table: int, row: int) -> int:
        return self._model.starts[table] + row

    def assign(self, slot: int, pages: Sequence[int], replay: Sequence[int]) -> None:
        self._upload(self._memory.pages[slot, : len(pages)], pages)
        if replay:
            self._upload(self._memory.replay[slot, : len(replay)], replay)

    def extend(self, slot: int, first: int, pages: Sequence[int], capacity: int) -> None:
        self._upload(self._memory.pages[slot, first : first + len(pages)], pages)
        self._upload(self._memory.state[slot, Column.CAPACITY : Column.CAPACITY + 1], [capacity])

    def prefill(self, stretches: Sequence[Stretch]) -> None:
        with torch.cuda.stream(self._stream):
            self._prefill.load(stretches)
            self._prefill_graph.replay()

    def activate(self, slot: int, state: Sequence[int]) -> None:
        self._upload(self._memory.state[slot], [*state, *[0] * (COLUMNS - len(state))])

    def step(self, slots: Sequence[int]) -> ReadDecisions:
        bucket = next(size for size in self._buckets if size >= len(slots))
        step, rows = self._steps[bucket], [*slots, *[0] * (bucket - len(slots))]
        if self._uploaded_rows.get(bucket) != rows:
            self._upload(step.rows, rows)
            self._uploaded_rows[bucket] = rows
        with torch.cuda.stream(self._stream):
            self._graphs[bucket].replay()
            return next(self._decisions).take(step.decisions, len(slots))

    def close(self) -> None:
        # raised by a device that has failed and runs nothing
        with contextlib.suppress(RuntimeError):
            self._stream.synchronize()

    def _upload(self, target: Tensor, values: Sequence[int]) -> None:
        with torch.cuda.stream(self._stream):
            target.copy_(torch.tensor(values, dtype=torch.int32).pin_memory(), non_blocking=True)


class CudaDecisions:
    """Decisions in a buffer of pinned memory, which later steps reuse."""

    def __init__(self, most_rows: int) -> None:
        self._decisions = torch.empty(most_rows, dtype=torch.int32, pin_memory=True)
        self._done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._count = 0

    def take(self, decisions: Tensor, count: int) -> ReadDecisions:
        """Enqueue the copy of the decisions on the current stream; the result reads the first
        `count`.
        """
        self._count = count
        self._decisions[: len(decisions)].copy_(decisions, non_blocking=True)
        self._done.record()
        return self._read

    def _read(self) -> list[int]:
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


def capture(step: DecodeStep | OneLaunchStep | PrefillStep, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
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


def start_engine(
    model: SpeechTokenModel,
    limits: Limits,
    *,
    device: torch.device,
    dtype: torch.dtype,
    positions: int,
    invariant: bool = False,
    one_launch: bool = False,
    on_fault: Callable[[str], None] | None = None,
) -> Engine:
    """The engine on a CUDA device, with a graph for every bucket of rows; the model may be on
    another device.

    limits.kv_bytes: allocated at once, None for DEFAULT_BUDGET. dtype: of matrices, embeddings,
    keys and values, bfloat16 or float32. positions: of the longest sequence. invariant: a row's
    numbers do not depend on the number of other rows, at some cost. one_launch: a step of one row
    is one launch that fills the device. The caller has checked model and device. Raises
    SettingsError for a budget that is too small or too large, Unsuitable where one launch cannot
    run.
    """
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 products must not be rounded to TF32
    packed = pack(model, dtype, positions, device)
    # The engine's thread then gets the GIL between two callbacks of a busy event loop, not 5 ms
    # later.
    sys.setswitchinterval(SWITCH_SECONDS)
    size = page_bytes(packed)
    pages = (DEFAULT_BUDGET if limits.kv_bytes is None else limits.kv_bytes) // size
    if pages < 1:
        raise SettingsError(f"COSYSERVE_LLM_KV_BUDGET_MIB is less than one page of {PAGE} positions, {size} bytes")
    # Up to `running + waiting` text streams can have begun and wait for text, in addition to the
    # sequences that run.
    slots = 2 * limits.running + limits.waiting
    pages = min(pages, slots * pages_for(positions))
    try:
        runner = CudaRunner(
            packed,
            pages=pages,
            slots=slots,
            positions=positions,
            most_rows=limits.running,
            invariant=invariant,
            one_launch=one_launch,
        )
    except torch.OutOfMemoryError as error:
        problem = (
            f"COSYSERVE_LLM_KV_BUDGET_MIB: {pages * size >> 20} MiB of keys and values do not fit next to the weights"
        )
        raise SettingsError(f"{problem} ({error})") from error
    reserved = dataclasses.replace(limits, kv_bytes=pages * size)
    return Engine(packed.config, reserved, partial(FusedStepper, runner), on_fault=on_fault)
