"""The engines that the speech-token service may load, best first."""

from dataclasses import replace

from cosyserve.engines.benchmark_note import read_note
from cosyserve.engines.engine_cache import default_directory
from services.llm.hosted.installed_libraries import TENSORRT_LLM, VLLM
from services.llm.settings import NOTED, LlmSettings

HOSTED = (TENSORRT_LLM, VLLM)
FUSED, READABLE, CPU = "fused", "readable", "cpu"


def hosted_first(settings: LlmSettings) -> str:
    """The hosted engine that `auto` tries before our own: the one that a setting names, or the one
    that a benchmark found faster on this host; empty: none. Blocks while it reads the note of the
    benchmark.
    """
    if settings.backend != "auto" or settings.device == "cpu":
        return ""
    return settings.auto_first or read_note(settings.engines or default_directory(), NOTED, settings.model)


def candidates(settings: LlmSettings, first: str = "") -> list[tuple[str, LlmSettings]]:
    """Name of each candidate and the settings that select it alone. first: the result of
    `hosted_first`.
    """
    if settings.backend == "fake":
        return [("fake", settings)]
    if settings.backend in HOSTED:
        return [(settings.backend, settings)]
    hosted = [(first, replace(settings, backend=first))] if first else []
    torch = replace(settings, backend="torch")
    on_gpu = [
        (engine, replace(torch, device="cuda", gpu_engine=engine))
        for engine in (FUSED, READABLE)
        if settings.device != "cpu" and settings.gpu_engine in ("auto", engine)
    ]
    on_cpu = [(CPU, replace(torch, device="cpu"))] if settings.device != "cuda" else []
    return [*hosted, *on_gpu, *on_cpu]
