"""Engines of a configuration: whether they exist, the commands that build them, and how these are
run.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from cosyserve.engines.benchmark_note import LLM, TOKEN2WAV
from cosyserve.engines.compatibility import incompatibility
from cosyserve.engines.engine_cache import COMPONENTS, EngineCache, default_directory
from cosyserve.engines.gpu_facts import TENSORRT
from cosyserve.errors import ModelError
from cosyserve.host.hardware import Machine, parse_version
from cosyserve.host.starting.configurations import Configuration
from cosyserve.model_directory import ModelDirectory
from cosyserve.settings import cache_directory

BUILD = "--precompile builds them"
SERVED_AS_IT_IS = ("hf", "vllm")
"""Forms of the LLM that need no engine."""
CONVERTED, _TOKEN2WAV = "COSYSERVE_LLM_CONVERTED", "COSYSERVE_TOKEN2WAV_"
PRECISION, _COMPATIBILITY = f"{_TOKEN2WAV}ENGINE_PRECISION", f"{_TOKEN2WAV}ENGINE_COMPATIBILITY"
PUBLISHED, PUBLISHED_FILE = "published", "flow.decoder.estimator.fp32.onnx"


def engine_directory(service: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Directory of the engine cache of llm or token2wav."""
    return Path(_engines(service, environ) or default_directory())


def _engines(service: str, environ: Mapping[str, str]) -> str | None:
    return environ.get(f"COSYSERVE_{service.upper()}_ENGINES")


def engines_are_built(
    configuration: Configuration, machine: Machine, model: Path, environ: Mapping[str, str] = os.environ
) -> bool:
    """Whether engines of every part exist for this machine and the model whose weights they are
    made of. environ: of the user. The service itself also checks all bytes.
    """
    if configuration.hosted == "llm":
        form = conversion_target(machine, configuration.backends["llm"])
        at = environ.get(CONVERTED) or (form and str(converted_directory(model, form, environ)))
        return bool(at) and (Path(str(at)) / "manifest.json").is_file()
    directory, variables = ModelDirectory(model), {**configuration.environ, **environ}
    wanted = {
        "model": directory.content_hash((*TOKEN2WAV.weight_files, directory.yaml_name)),
        "precision": variables[PRECISION],
    }
    gpus, tensorrt = [] if machine.gpu is None else [machine.gpu.facts], machine.version(*TENSORRT)
    components = {"token2wav.graphs"}
    if configuration.on_gpu:
        components = {f"token2wav.{part}" for part in COMPONENTS}
        wanted["compatibility"] = variables.get(_COMPATIBILITY) or "none"
    libraries = {"tensorrt": tensorrt} if tensorrt is not None else {}
    return components <= {
        key.component
        for key in (entry.key for entry in EngineCache(engine_directory("token2wav", environ)).entries())
        if wanted.items() <= key.facts.items() and incompatibility(key.facts, gpus, libraries) is None
    }


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
    content = ModelDirectory(model).content_hash(LLM.weight_files)
    return cache_directory(environ) / "converted" / f"llm-{form}-{content}"


def build_commands(
    backends: Mapping[str, str],
    machine: Machine,
    model: Path,
    environ: Mapping[str, str] = os.environ,
    decoder_model: Path | None = None,
) -> list[list[str]]:
    """Arguments of `cosyserve model` that build missing engines; fast if none is missing. backends:
    of llm and token2wav. environ: variables of the services, which must find the engines.
    decoder_model: of flow and vocoder, where they are not those of `model`.
    """
    commands = []
    decoder = decoder_model or model
    published = decoder / PUBLISHED_FILE if environ.get(f"{_TOKEN2WAV}ENGINE_ESTIMATOR") == PUBLISHED else None
    graphs = {
        "--precision": environ.get(PRECISION),
        "--published": published,
        "--engines": _engines("token2wav", environ),
    }
    if backends["token2wav"] == "tensorrt":
        device = environ.get(f"{_TOKEN2WAV}DEVICE")
        plans = {
            "--streams": environ.get(f"{_TOKEN2WAV}WIDEST_STEP"),
            "--compatibility": environ.get(_COMPATIBILITY),
            "--device": None if device in ("auto", "cuda") else device,
        }
        commands.append(["build", "token2wav", str(decoder), *_options(graphs | plans)])
    if backends["token2wav"] == "onnxruntime":
        commands.append(["export", str(decoder), *_options(graphs)])
    form = conversion_target(machine, backends["llm"])
    if form is None:
        return commands
    directory = str(converted_directory(model, form, environ))
    # a directory that the user has named is not built here
    if environ.get(CONVERTED) in (None, "", directory):
        commands.append(["convert", str(model), "--target", form, "--output", directory])
        if form not in SERVED_AS_IT_IS:
            commands.append(["build", "llm", directory, *_options({"--engines": _engines("llm", environ)})])
    return commands


def _options(values: Mapping[str, str | Path | None]) -> list[str]:
    """Names and values on a command line, of those that have a value."""
    return [str(part) for name, value in values.items() if value for part in (name, value)]


_STOP_SECONDS = 10.0


async def precompile(steps: list[list[str]], report: Callable[[str], None]) -> None:
    """Run the steps one after another, with their own progress on this terminal. Raises ModelError
    if one fails.
    """
    for step in steps:
        command_line = shlex.join(["cosyserve", "model", *step])
        report(command_line)
        # In a process group of its own: processes that a step has started, such as trtllm-build,
        # are stopped with it.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cosyserve", "model", *step, process_group=0
        )
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                await _stop(process)
        if status != 0:
            raise ModelError(f"{command_line} ended with status {status}; its own lines above say why")


async def _stop(group: asyncio.subprocess.Process) -> None:
    """Stop as Ctrl-C does, which keeps finished results; kill the group if that takes too long."""
    _signal(group, signal.SIGINT)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS):
            await group.wait()
    # Also if the step itself has ended: its child processes may still run.
    _signal(group, signal.SIGKILL)
    await group.wait()


def _signal(group: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty
        os.killpg(group.pid, number)
