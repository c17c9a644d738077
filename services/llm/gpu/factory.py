"""Builds an engine with fused steps from the readable model: packed weights, memory for keys and
values, captured graphs.
"""

import dataclasses
import sys
from collections.abc import Callable

import torch

from cosyserve.errors import SettingsError
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits
from services.llm.gpu.decode import page_bytes
from services.llm.gpu.kv_slots import pages_for
from services.llm.gpu.layout import PAGE
from services.llm.gpu.packing import pack
from services.llm.gpu.runner import CudaRunner
from services.llm.gpu.stepper import FusedStepper

DEFAULT_BUDGET = 4 << 30
"""Bytes of keys and values where the settings set no limit."""
SWITCH_SECONDS = 0.0005
"""Python's thread switch interval."""


def start_engine(
    model: SpeechTokenModel,
    limits: Limits,
    *,
    device: torch.device,
    dtype: torch.dtype,
    positions: int,
    invariant: bool = False,
    on_fault: Callable[[str], None] | None = None,
) -> Engine:
    """The engine on a CUDA device, with a graph for every bucket of rows; the model may be on
    another device.

    limits.kv_bytes: allocated at once, None for DEFAULT_BUDGET. dtype: of matrices, embeddings,
    keys and values, bfloat16 or float32. positions: of the longest sequence. invariant: a row's
    numbers do not depend on the number of other rows, at some cost. The caller has checked model
    and device with `suitability`. Raises SettingsError for a budget that is too small or too large.
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
            packed, pages=pages, slots=slots, positions=positions, most_rows=limits.running, invariant=invariant
        )
    except torch.OutOfMemoryError as error:
        problem = (
            f"COSYSERVE_LLM_KV_BUDGET_MIB: {pages * size >> 20} MiB of keys and values do not fit next to the weights"
        )
        raise SettingsError(f"{problem} ({error})") from error
    reserved = dataclasses.replace(limits, kv_bytes=pages * size)
    return Engine(packed, reserved, on_fault=on_fault, steps=lambda stats, remove: FusedStepper(runner, stats, remove))
