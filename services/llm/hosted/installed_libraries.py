"""Whether TensorRT-LLM and vLLM can serve on this machine, and why not. The checks import no tensor
library: packages are looked up without importing them, GPUs through nvidia-smi.
"""

import importlib
import importlib.util
import os
import re
from types import ModuleType

from cosyserve.engines.fallback import EngineUnavailable
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
    """Why TensorRT-LLM cannot serve here; empty when no reason is known."""
    if refusal := _library_refusal(TENSORRT_LLM):
        return refusal
    release = _release(TENSORRT_LLM)
    if settings.converted is not None and release < (1, 0):
        return (
            "tensorrt_llm before 1.0 serves only built engines: leave COSYSERVE_LLM_CONVERTED unset and run "
            "cosyserve model build llm"
        )
    if settings.converted is None and release >= (1, 3):
        return (
            "tensorrt_llm from 1.3 on runs no built engine and COSYSERVE_LLM_CONVERTED is not set; "
            f"{_CONVERT.format('hf')}"
        )
    return ""


def vllm_refusal(settings: LlmSettings) -> str:
    """Why vLLM cannot serve here; empty when no reason is known."""
    unset = f"COSYSERVE_LLM_CONVERTED is not set; {_CONVERT.format('vllm')}"
    return _library_refusal(VLLM) or (unset if settings.converted is None else "")


def imported(name: str, *modules: str) -> tuple[ModuleType, ...]:
    """The modules of the library `name`. Raises EngineUnavailable with the reason where the library
    is installed but cannot be imported, for example because of a missing shared library, a
    directory that is not writable or an unsuitable release of torch.
    """
    # Without it both libraries report each start to their vendors.
    os.environ.setdefault("DO_NOT_TRACK", "1")
    try:
        return tuple(importlib.import_module(module) for module in modules)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise EngineUnavailable(
            f"the package {name} cannot be imported: {type(error).__name__}: {reason}; {_INSTALL[name]}"
        ) from error


def _library_refusal(name: str) -> str:
    if not visible_gpus():
        return f"{name} needs an NVIDIA GPU, and nvidia-smi reports none"
    if importlib.util.find_spec(name) is None:
        return f"the package {name} is not installed: {_INSTALL[name]}"
    release, oldest = _release(name), _OLDEST[name]
    if release < oldest:
        return (
            f"{name} {'.'.join(map(str, release))} is installed, the oldest supported is {'.'.join(map(str, oldest))}"
        )
    return ""


def _release(name: str) -> tuple[int, ...]:
    """Major and minor version; (0, 0) where the package has none. The version of the module is used
    where no distribution is known, as after a build in place. Raises EngineUnavailable where the
    module cannot be imported.
    """
    version = library_versions(name).get(name) or str(getattr(imported(name, name)[0], "__version__", ""))
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
