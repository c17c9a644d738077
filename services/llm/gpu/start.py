"""From the readable model to an engine with fused steps: packed weights, memory for keys and values, captured graphs."""

from collections.abc import Callable

import torch

from cosyserve.errors import SettingsError
from services.llm.config import LlmConfig
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits
from services.llm.gpu.decode import PAGE, page_bytes
from services.llm.gpu.packing import pack
from services.llm.gpu.runner import CudaRunner
from services.llm.gpu.seats import pages_for
from services.llm.gpu.stepper import FusedStepper
from services.llm.gpu.tuning import BUCKETS
from services.llm.settings import LlmSettings

DEFAULT_BUDGET = 4 << 30
"""Bytes for keys and values where the settings name none."""
SMALLEST_DIVISOR = 16
"""Matrix units take so many numbers of a row at a time."""
MOST_CANDIDATES = 128


def start_engine(model: SpeechTokenModel, settings: LlmSettings, budget: int | None, on_fault: Callable[[str], None] | None) -> Engine:
    """The engine, every bucket of rows captured. Raises SettingsError when the model or the settings do not suit fused steps."""
    check(model.config, settings)
    # Rows of a batch that are being decoded compete with others of other sizes only within rounding, but float32 has to be float32.
    torch.backends.cuda.matmul.allow_tf32 = False
    packed = pack(model, torch.float32 if settings.precision == "float32" else torch.bfloat16, settings.max_positions)
    pages = (DEFAULT_BUDGET if budget is None else budget) // page_bytes(packed)
    if pages < 1:
        raise SettingsError(f"COSYSERVE_LLM_KV_BUDGET_MIB is less than one page of {PAGE} positions, {page_bytes(packed)} bytes")
    slots = settings.max_sequences + settings.max_waiting
    pages = min(pages, slots * pages_for(settings.max_positions))
    runner = CudaRunner(packed, pages=pages, slots=slots, positions=settings.max_positions, most_rows=settings.max_sequences)
    limits = Limits(
        running=settings.max_sequences,
        waiting=settings.max_waiting,
        kv_bytes=pages * page_bytes(packed),
        retry_after=settings.retry_after_seconds,
    )
    return Engine(packed, limits, on_fault=on_fault, steps=lambda stats, remove: FusedStepper(runner, stats, remove))


def check(config: LlmConfig, settings: LlmSettings) -> None:
    """Raises SettingsError naming what fused steps cannot do."""
    head = config.head_size
    widths = {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size, "head_size": head}
    for name, width in widths.items():
        if width % SMALLEST_DIVISOR:
            raise SettingsError(f"fused steps need a {name} that {SMALLEST_DIVISOR} divides, the model has {width}; set COSYSERVE_LLM_STEPS=readable")
    if head & (head - 1):
        raise SettingsError(f"fused steps need a head_size that is a power of two, the model has {head}; set COSYSERVE_LLM_STEPS=readable")
    if config.sampling.top_k > MOST_CANDIDATES:
        raise SettingsError(
            f"fused steps sample among at most {MOST_CANDIDATES} ids, top_k is {config.sampling.top_k}; set COSYSERVE_LLM_STEPS=readable"
        )
    if settings.max_sequences > BUCKETS[-1]:
        raise SettingsError(f"COSYSERVE_LLM_MAX_SEQUENCES is {settings.max_sequences}, fused steps take at most {BUCKETS[-1]}")
