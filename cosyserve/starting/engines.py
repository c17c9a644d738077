"""Engines that a configuration wants: whether they are there, and the commands that make them."""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from cosyserve.cache_directory import cache_directory
from cosyserve.doctor.support import parsed
from cosyserve.engine_cache import EngineCache, default_directory
from cosyserve.errors import ModelError
from cosyserve.hardware.configurations import Configuration
from cosyserve.hardware.machine import Machine
from cosyserve.model_directory import ModelDirectory

BUILD = "--precompile builds them"
SERVED_AS_IT_IS = ("hf", "vllm")
"""Forms of the LLM that need no engine built of them."""
ENGINES, LLM_ENGINES = "COSYSERVE_TOKEN2WAV_ENGINES", "COSYSERVE_LLM_ENGINES"
_STOP_SECONDS = 10.0
WEIGHTS = ("flow.pt", "hift.pt")
PARTS = ("encoder", "estimator", "pitch", "filter")
"""What token2wav's engines are made of, and what they are called in the cache behind `token2wav.`."""


def cache(environ: Mapping[str, str] = os.environ) -> EngineCache:
    """The one that token2wav will look into."""
    return EngineCache(Path(environ[ENGINES]) if environ.get(ENGINES) else default_directory())


def built(configuration: Configuration, machine: Machine, model: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether there are engines of every part for this model and machine. The service checks more, and all bytes."""
    directory = ModelDirectory(model)
    wanted = {"model": directory.content_hash((*WEIGHTS, directory.yaml_name))}
    wanted["precision"] = configuration.environ["COSYSERVE_TOKEN2WAV_ENGINE_PRECISION"]
    components = {"token2wav.graphs"}
    if configuration.on_gpu and machine.gpu is not None:
        components = {f"token2wav.{part}" for part in PARTS}
        wanted |= {"gpu": machine.gpu.name, "driver": machine.gpu.driver}
        wanted["tensorrt"] = machine.version("tensorrt", "tensorrt-cu12", "tensorrt-cu13") or ""
    there = {entry.key.component for entry in cache(environ).entries() if wanted.items() <= dict(entry.key.facts).items()}
    return components <= there


def conversion(machine: Machine) -> str | None:
    """The form of the LLM that a hosted engine which is installed here loads; None without one."""
    release = parsed(machine.version("tensorrt_llm") or "")
    if release[:1] == (0,):
        return "trtllm-0.20"
    return "hf" if release else "vllm" if machine.version("vllm") else None


def converted_directory(model: Path, form: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the LLM of this model lies in that form."""
    content = ModelDirectory(model).content_hash(("llm.pt",))
    return cache_directory(environ) / "converted" / f"llm-{form}-{content}"


def commands(configuration: Configuration, machine: Machine, model: Path, environ: Mapping[str, str] = os.environ) -> list[list[str]]:
    """Arguments of `cosyserve model` that make what is missing; each is quick where nothing is."""
    made = []
    precision = configuration.environ.get("COSYSERVE_TOKEN2WAV_ENGINE_PRECISION", "")
    engines = ["--engines", environ[ENGINES]] if environ.get(ENGINES) else []
    if configuration.backends["token2wav"] == "tensorrt":
        made.append(["build", "token2wav", str(model), "--precision", precision, *engines])
    if configuration.backends["token2wav"] == "onnxruntime":
        made.append(["export", str(model), "--precision", precision, *engines])
    form = conversion(machine)
    if configuration.backends["llm"] == "auto" and form is not None:
        directory = str(converted_directory(model, form, environ))
        made.append(["convert", str(model), "--target", form, "--output", directory])
        if form not in SERVED_AS_IT_IS:
            cached = ["--engines", environ[LLM_ENGINES]] if environ.get(LLM_ENGINES) else []
            made.append(["build", "llm", directory, *cached])
    return made


async def precompile(steps: list[list[str]], report: Callable[[str], None]) -> None:
    """Run them one after the other, their own progress on this terminal. Raises ModelError when one fails."""
    for step in steps:
        shown = shlex.join(["cosyserve", "model", *step])
        report(shown)
        # A group of its own: what a step has started, such as trtllm-build, is stopped with it.
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "cosyserve", "model", *step, process_group=0)
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                await _stop(process)
        if status != 0:
            raise ModelError(f"{shown} ended with status {status}; its own lines above say why")


async def _stop(group: asyncio.subprocess.Process) -> None:
    """As Ctrl-C does, which leaves what is finished; without mercy where that takes too long."""
    os.killpg(group.pid, signal.SIGINT)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS):
            await group.wait()
            return
    os.killpg(group.pid, signal.SIGKILL)
    await group.wait()
