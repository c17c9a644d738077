"""From the readable model to an engine with fused steps: packed weights, memory for keys and
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
"""Bytes for keys and values where the settings name none."""
SWITCH_SECONDS = 0.0005
"""How long a Python thread runs while another waits."""


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
    """The engine on a CUDA device, every bucket of rows captured; the model may be elsewhere.

    limits.kv_bytes: taken at once, None for DEFAULT_BUDGET. dtype: of matrices, embeddings, keys
    and values, bfloat16 or float32. positions: of the longest sequence. invariant: a row's numbers
    do not depend on how many others there are, at some cost. The model and the device are such that
    `suitability` lets pass. Raises SettingsError for a budget that does not suit.
    """
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 has to be float32
    packed = pack(model, dtype, positions, device)
    # The engine's thread comes to its turn between two callbacks of a busy event loop, not 5 ms
    # later.
    sys.setswitchinterval(SWITCH_SECONDS)
    size = page_bytes(packed)
    pages = (DEFAULT_BUDGET if limits.kv_bytes is None else limits.kv_bytes) // size
    if pages < 1:
        raise SettingsError(f"COSYSERVE_LLM_KV_BUDGET_MIB is less than one page of {PAGE} positions, {size} bytes")
    # As many text streams as may run and wait can have begun and wait for text, beside those that
    # have a place.
    slots = 2 * limits.running + limits.waiting
    pages = min(pages, slots * pages_for(positions))
    try:
        runner = CudaRunner(
            packed, pages=pages, slots=slots, positions=positions, most_rows=limits.running, invariant=invariant
        )
    except torch.OutOfMemoryError as error:
        told = f"COSYSERVE_LLM_KV_BUDGET_MIB: {pages * size >> 20} MiB of keys and values do not fit beside the weights"
        raise SettingsError(f"{told} ({error})") from error
    held = dataclasses.replace(limits, kv_bytes=pages * size)
    return Engine(packed, held, on_fault=on_fault, steps=lambda stats, remove: FusedStepper(runner, stats, remove))
