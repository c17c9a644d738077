"""Loads the first backend of the candidates that serves on this machine. Each backend imports its
own heavy libraries, so that only the chosen one is imported.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cosyserve.engines.benchmark_note import LLM, read_note
from cosyserve.engines.engine_cache import default_directory
from cosyserve.engines.fallback import Candidate, LoadedEngine, ResumeFrom, first_working
from cosyserve.engines.one_launch import ONE_LAUNCH
from services.llm.backends.backend import Backend
from services.llm.hosted.installed_libraries import TENSORRT_LLM, VLLM
from services.llm.settings import LlmSettings


def load_backend(settings: LlmSettings, on_fault: Callable[[str], None] | None = None) -> Backend:
    """As `load_chosen`, without the report of which candidates were refused."""
    return load_chosen(settings, on_fault).engine


def load_chosen(
    settings: LlmSettings, on_fault: Callable[[str], None] | None = None, below: ResumeFrom | None = None
) -> LoadedEngine[Backend]:
    """Load the first backend that the settings allow and that this machine can run; its warm-up is
    left to the caller. below: continue after a candidate that failed in its first sentence. Blocks
    while it reads the model.

    on_fault: called with the reason, from any thread, when the engine fails for good. Raises
    ModelError naming what is wrong in the model directory, SettingsError when no candidate can
    serve here.
    """
    ladder = [
        Candidate(
            name,
            partial(_load, wanted, on_fault),
            needs_files=name in HOSTED,
            discard=lambda late: asyncio.run(late.close()),
        )
        for name, wanted in candidates(settings, hosted_first(settings))
    ]
    return first_working(
        "llm",
        ladder,
        strict=settings.strict,
        setting="COSYSERVE_LLM_STRICT",
        choice=f"COSYSERVE_LLM_GPU_ENGINE={FUSED}" if settings.gpu_engine == ladder[-1].name == FUSED else "",
        below=below,
        load_seconds=settings.load_seconds,
    )


def _load(settings: LlmSettings, on_fault: Callable[[str], None] | None) -> Backend:
    if settings.backend == "fake":
        from services.llm.backends.fake_backend import FakeBackend

        return FakeBackend(settings)
    if settings.backend == TENSORRT_LLM:
        from services.llm.hosted.trtllm_backend import load_trtllm

        return load_trtllm(settings, on_fault)
    if settings.backend == VLLM:
        from services.llm.hosted.vllm.vllm_backend import load_vllm

        return load_vllm(settings, on_fault)
    from services.llm.backends.torch_backend import TorchBackend

    return TorchBackend.load(settings, on_fault)


HOSTED = (TENSORRT_LLM, VLLM)
FUSED, READABLE, CPU = "fused", "readable", "cpu"


def hosted_first(settings: LlmSettings) -> str:
    """The hosted engine that `auto` tries before our own: the one that a setting names, or the one
    that a benchmark found faster on this host; empty: none. Blocks while it reads the note of the
    benchmark.
    """
    if settings.backend != "auto" or settings.device == "cpu":
        return ""
    return settings.auto_first or read_note(settings.engines or default_directory(), LLM, settings.model)


def candidates(settings: LlmSettings, first: str = "") -> list[tuple[str, LlmSettings]]:
    """Name of each candidate and the settings that select it alone. first: the result of
    `hosted_first`.
    """
    if settings.backend == "fake":
        return [("fake", settings)]
    if settings.backend in HOSTED:
        return [(settings.backend, settings)]
    torch = replace(settings, backend="torch")
    if settings.gpu_decode == ONE_LAUNCH:  # nothing else has it, and an operator who sets it means it
        return [(FUSED, replace(torch, device="cuda", gpu_engine=FUSED))]
    hosted = [(first, replace(settings, backend=first))] if first else []
    on_gpu = [
        (engine, replace(torch, device="cuda", gpu_engine=engine))
        for engine in (FUSED, READABLE)
        if settings.device != "cpu" and settings.gpu_engine in ("auto", engine)
    ]
    cpu_allowed = settings.device == "cpu" or (settings.device == "auto" and settings.gpu_engine != FUSED)
    on_cpu = [(CPU, replace(torch, device="cpu"))] if cpu_allowed else []
    return [*hosted, *on_gpu, *on_cpu]
