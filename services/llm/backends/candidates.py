"""Which engines the speech-token service would take, best first, and what of a machine speaks
against the hosted ones. No tensor library is asked: packages are looked for without importing them,
GPUs through nvidia-smi."""

import importlib
import importlib.util
import os
import re
from dataclasses import replace
from types import ModuleType

from cosyserve.engines.benchmark_note import read_note
from cosyserve.engines.engine_cache import default_directory
from cosyserve.engines.fallback import Unserved
from cosyserve.engines.gpu_facts import library_versions, visible_gpus
from services.llm.settings import NOTED, LlmSettings

TENSORRT_LLM, VLLM, FUSED, READABLE, CPU = "tensorrt_llm", "vllm", "fused", "readable", "cpu"
HOSTED = (TENSORRT_LLM, VLLM)
_OLDEST = {TENSORRT_LLM: (0, 20), VLLM: (0, 11)}
_INSTALL = {
    TENSORRT_LLM: "pip install tensorrt_llm in an image of its own (Dockerfile, target llm)",
    VLLM: "pip install vllm",
}
_CONVERT = "make one with cosyserve model convert MODEL --target {} --output DIR and set COSYSERVE_LLM_CONVERTED=DIR"


def hosted_first(settings: LlmSettings) -> str:
    """The hosted engine that `auto` tries before our own: the one that a setting names, or the one
    that was measured to be faster on this host; empty without. Blocks while a note is read."""
    if settings.backend != "auto" or settings.device == "cpu":
        return ""
    return settings.auto_first or read_note(settings.engines or default_directory(), NOTED, settings.model)


def rungs(settings: LlmSettings, first: str = "") -> list[tuple[str, LlmSettings]]:
    """Name of each rung and the settings that ask for it alone. first: as `hosted_first` says."""
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


def tensorrt_llm_refusal(settings: LlmSettings) -> str:
    """Why TensorRT-LLM cannot serve here; empty when nothing is known against it."""
    refusal = _library_refusal(TENSORRT_LLM)
    if refusal:
        return refusal
    release = _release(TENSORRT_LLM)
    if settings.converted is not None and release < (1, 0):
        return "tensorrt_llm before 1.0 serves built engines alone: leave COSYSERVE_LLM_CONVERTED unset and run cosyserve model build llm"
    if settings.converted is None and release >= (1, 3):
        return f"tensorrt_llm from 1.3 on runs no built engine and COSYSERVE_LLM_CONVERTED is not set; {_CONVERT.format('hf')}"
    return ""


def vllm_refusal(settings: LlmSettings) -> str:
    """Why vLLM cannot serve here; empty when nothing is known against it."""
    refusal = _library_refusal(VLLM)
    if refusal:
        return refusal
    return "" if settings.converted is not None else f"COSYSERVE_LLM_CONVERTED is not set; {_CONVERT.format('vllm')}"


def imported(name: str, *modules: str) -> tuple[ModuleType, ...]:
    """The modules of the library `name`. Raises Unserved with the reason where it is there and
    cannot be imported: a shared library that is missing, a directory that cannot be written, a
    torch of another release."""
    # both libraries tell their makers of each start otherwise
    os.environ.setdefault("DO_NOT_TRACK", "1")
    try:
        return tuple(importlib.import_module(module) for module in modules)
    except Exception as error:
        told = next(iter(str(error).splitlines()), "")
        raise Unserved(
            f"the package {name} cannot be imported: {type(error).__name__}: {told}; {_INSTALL[name]}"
        ) from error


def _library_refusal(name: str) -> str:
    if not visible_gpus():
        return f"{name} needs an NVIDIA GPU, and nvidia-smi tells of none"
    if importlib.util.find_spec(name) is None:
        return f"the package {name} is not installed: {_INSTALL[name]}"
    release, oldest = _release(name), _OLDEST[name]
    if release < oldest:
        return f"{name} {'.'.join(map(str, release))} is installed, {'.'.join(map(str, oldest))} is the oldest that can be served"
    return ""


def _release(name: str) -> tuple[int, ...]:
    """Major and minor version; (0, 0) for a package that does not tell. The module itself is asked
    where no distribution is known, as with one that was built in place. Raises Unserved where it
    cannot be imported."""
    told = library_versions(name).get(name) or str(getattr(imported(name, name)[0], "__version__", ""))
    found = re.match(r"(\d+)\.(\d+)", told)
    return (int(found[1]), int(found[2])) if found else (0, 0)
