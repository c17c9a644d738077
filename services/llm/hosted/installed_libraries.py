"""Whether TensorRT-LLM and vLLM can serve on this machine, and why not. The checks import no tensor
library: packages are looked up without importing them, GPUs through nvidia-smi.
"""

import importlib
import importlib.util
import os
import re
from types import ModuleType

from cosyserve.engines.fallback import Unserved
from cosyserve.engines.gpu_facts import library_versions, visible_gpus
from services.llm.settings import LlmSettings

TENSORRT_LLM, VLLM = "tensorrt_llm", "vllm"
_OLDEST = {TENSORRT_LLM: (0, 20), VLLM: (0, 11)}
_INSTALL = {
    TENSORRT_LLM: "pip install tensorrt_llm in an image of its own (Dockerfile, target llm)",
    VLLM: "pip install vllm",
}
_CONVERT = "make one with cosyserve model convert MODEL --target {} --output DIR and set COSYSERVE_LLM_CONVERTED=DIR"


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
