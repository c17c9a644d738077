"""Notes of `cosyserve start --benchmark` for later starts: whether an engine of another library was
faster than our own.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cosyserve.engines.benchmark_note import Note, NotedService, facts, read_note, write
from cosyserve.engines.gpu_facts import TENSORRT
from cosyserve.host.starting.configurations import BY_NAME
from cosyserve.host.starting.engine_builds import LLM_WEIGHTS, PRECISION, WEIGHTS, cache, llm_cache
from cosyserve.host.starting.measurement import Trial

LLM, TOKEN2WAV = "llm", "token2wav"
SERVICES = {
    LLM: NotedService(LLM, ("tensorrt_llm", "vllm"), LLM_WEIGHTS, ("torch", "triton", "tensorrt_llm", "vllm")),
    TOKEN2WAV: NotedService(TOKEN2WAV, ("tensorrt",), WEIGHTS, ("torch", "triton", *TENSORRT)),
}
"""Equal to what each service declares, so that it finds the notes (checked by a test)."""
FASTER = 0.9
"""Another engine must be below this share of our own real-time factor: one measured sentence is
accurate to about a tenth.
"""


def read_notes(model: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """By service, the hosted engine that was measured to be faster on this machine. Blocks while
    checkpoints are hashed.
    """
    results = {
        name: read_note(_root(name, environ), service, model, _precision(name, environ))
        for name, service in SERVICES.items()
    }
    return {service: engine for service, engine in results.items() if engine}


def write_notes(trials: Sequence[Trial], model: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Write a note for each service of which a hosted engine was measured as well as our own.
    Returns by service what `auto` takes from now on, empty for our own. Blocks. Raises OSError.
    """
    preferred = {}
    for service in SERVICES:
        factors = _factors(trials, service)
        own = [factor for name, factor in factors.items() if BY_NAME[name].hosted is None]
        others = {hosted[1]: factors[name] for name in factors if (hosted := BY_NAME[name].hosted) is not None}
        if not own or not others:
            continue
        best = min(others, key=lambda engine: others[engine])
        preferred[service] = best if others[best] <= FASTER * min(own) else ""
        write(
            _root(service, environ),
            facts(SERVICES[service], model, _precision(service, environ)),
            Note(preferred[service], factors),
        )
    return preferred


def _factors(trials: Sequence[Trial], service: str) -> dict[str, float]:
    """Real-time factors of the configurations that spoke: our own on a GPU, and those whose hosted
    engine is this service's.
    """
    results = {}
    for trial in trials:
        configuration = BY_NAME[trial.name]
        counts = configuration.hosted is None or configuration.hosted[0] == service
        if trial.measured is not None and counts and configuration.on_gpu:
            results[trial.name] = trial.real_time_factor
    return results


def _root(service: str, environ: Mapping[str, str]) -> Path:
    return llm_cache(environ) if service == LLM else cache(environ).root


def _precision(service: str, environ: Mapping[str, str]) -> str:
    """Precision of the exported estimator that was measured: from the environment of the user, else
    of the configuration.
    """
    return environ.get(PRECISION) or BY_NAME["trt+fp16"].environ[PRECISION] if service == TOKEN2WAV else ""
