"""Engines of a configuration: whether they exist, and the commands that build them."""

import os
from collections.abc import Mapping
from pathlib import Path

from cosyserve.engines.compatibility import incompatibility
from cosyserve.engines.engine_cache import EngineCache, default_directory
from cosyserve.engines.gpu_facts import TENSORRT
from cosyserve.host.hardware import BUNDLED_IN, Machine, parse_version
from cosyserve.host.starting.configurations import Configuration
from cosyserve.model_directory import ModelDirectory
from cosyserve.settings import cache_directory

BUILD = "--precompile builds them"
SERVED_AS_IT_IS = ("hf", "vllm")
"""Forms of the LLM that need no engine."""
ENGINES, LLM_ENGINES, CONVERTED = "COSYSERVE_TOKEN2WAV_ENGINES", "COSYSERVE_LLM_ENGINES", "COSYSERVE_LLM_CONVERTED"
PRECISION, _COMPATIBILITY = "COSYSERVE_TOKEN2WAV_ENGINE_PRECISION", "COSYSERVE_TOKEN2WAV_ENGINE_COMPATIBILITY"
_ESTIMATOR, _STREAMS, _DEVICE = (
    "COSYSERVE_TOKEN2WAV_ENGINE_ESTIMATOR",
    "COSYSERVE_TOKEN2WAV_WIDEST_STEP",
    "COSYSERVE_TOKEN2WAV_DEVICE",
)
WEIGHTS, LLM_WEIGHTS = ("flow.pt", "hift.pt"), ("llm.pt",)
PARTS = ("encoder", "estimator", "pitch", "filter")
"""Parts of the engines of token2wav; their names in the cache follow `token2wav.`."""
PUBLISHED, PUBLISHED_FILE = "published", "flow.decoder.estimator.fp32.onnx"


def llm_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Directory of the engine cache of the LLM service."""
    return Path(environ[LLM_ENGINES]) if environ.get(LLM_ENGINES) else default_directory()


def cache(environ: Mapping[str, str] = os.environ) -> EngineCache:
    """The engine cache of token2wav."""
    return EngineCache(Path(environ[ENGINES]) if environ.get(ENGINES) else default_directory())


def engines_are_built(
    configuration: Configuration, machine: Machine, model: Path, environ: Mapping[str, str] = os.environ
) -> bool:
    """Whether engines of every part exist for this model and machine. environ: of the user. The
    service itself also checks all bytes.
    """
    if configuration.hosted is not None and configuration.hosted[0] == "llm":
        form = conversion_target(machine, configuration.hosted[1])
        at = environ.get(CONVERTED) or (form and str(converted_directory(model, form, environ)))
        return bool(at) and (Path(str(at)) / "manifest.json").is_file()
    directory, variables = ModelDirectory(model), {**configuration.environ, **environ}
    wanted = {"model": directory.content_hash((*WEIGHTS, directory.yaml_name)), "precision": variables[PRECISION]}
    gpus, tensorrt = [] if machine.gpu is None else [machine.gpu.facts], machine.version(*TENSORRT)
    components = {"token2wav.graphs"}
    if configuration.on_gpu:
        components = {f"token2wav.{part}" for part in PARTS}
        wanted["compatibility"] = variables.get(_COMPATIBILITY) or "none"
    libraries = {"tensorrt": tensorrt} if tensorrt is not None else {}
    keys = (entry.key for entry in cache(environ).entries())
    existing = {
        key.component
        for key in keys
        if wanted.items() <= key.facts.items()
        and incompatibility(key.facts, gpus, libraries, bundled_in=BUNDLED_IN) is None
    }
    return components <= existing


def conversion_target(machine: Machine, backend: str) -> str | None:
    """The form of the LLM that the hosted engine `backend` loads; None if it is not installed here,
    or not a hosted engine.
    """
    release = parse_version(machine.version("tensorrt_llm") or "")
    if release and backend == "tensorrt_llm":
        return "trtllm-0.20" if release[0] == 0 else "hf"
    return "vllm" if machine.version("vllm") and backend == "vllm" else None


def converted_directory(model: Path, form: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Directory of the LLM of this model in that form."""
    content = ModelDirectory(model).content_hash(LLM_WEIGHTS)
    return cache_directory(environ) / "converted" / f"llm-{form}-{content}"


def build_commands(
    backends: Mapping[str, str], machine: Machine, model: Path, environ: Mapping[str, str] = os.environ
) -> list[list[str]]:
    """Arguments of `cosyserve model` that build missing engines; fast if none is missing. backends:
    of llm and token2wav. environ: variables of the services, which must find the engines.
    """
    commands = []
    if backends["token2wav"] == "tensorrt":
        commands.append(["build", "token2wav", str(model), *_graph_options(model, environ), *_plan_options(environ)])
    if backends["token2wav"] == "onnxruntime":
        commands.append(["export", str(model), *_graph_options(model, environ)])
    form = conversion_target(machine, backends["llm"])
    if form is None:
        return commands
    directory = str(converted_directory(model, form, environ))
    # a directory that the user has named is not built here
    if environ.get(CONVERTED) in (None, "", directory):
        commands.append(["convert", str(model), "--target", form, "--output", directory])
        if form not in SERVED_AS_IT_IS:
            commands.append(["build", "llm", directory, *_given("--engines", environ.get(LLM_ENGINES))])
    return commands


def _graph_options(model: Path, environ: Mapping[str, str]) -> list[str]:
    published = str(model / PUBLISHED_FILE) if environ.get(_ESTIMATOR) == PUBLISHED else None
    precision = _given("--precision", environ.get(PRECISION))
    return [*precision, *_given("--published", published), *_given("--engines", environ.get(ENGINES))]


def _plan_options(environ: Mapping[str, str]) -> list[str]:
    device = environ.get(_DEVICE)
    variables = {"--streams": environ.get(_STREAMS), "--compatibility": environ.get(_COMPATIBILITY)}
    variables["--device"] = None if device in ("auto", "cuda") else device
    return [part for name, value in variables.items() for part in _given(name, value)]


def _given(name: str, value: str | None) -> list[str]:
    return [name, value] if value else []
