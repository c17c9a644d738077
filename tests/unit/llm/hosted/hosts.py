"""The hosted backends on their fake libraries, and access to the engine of the fake."""

import contextlib
import importlib.machinery
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from cosyserve.engines.gpu_facts import Gpu, library_versions
from services.llm.hosted import installed_libraries
from services.llm.hosted.hosted_backend import HostedBackend
from services.llm.hosted.vllm import vllm_backend, vllm_plugin
from tests.unit.llm.hosted import fake_tensorrt_llm, fake_vllm
from tests.unit.llm.hosted.step_engine import StepEngine
from tests.unit.llm.tiny_llm import TINY, settings
from tools.model.checkpoints.tensor_file import Precision
from tools.model.convert import convert

GPU = {"gpu": "NVIDIA L4", "compute_capability": "8.9", "driver": "570.86"}
KINDS = ("tensorrt_llm", "vllm", "vllm embeddings")
"""The last: the export whose prompts are embeddings."""
SEAMS = (KINDS[0], KINDS[2])
"""One of each library."""
MODULES = ("services.llm.hosted.vllm.vllm_processor", "services.llm.hosted.vllm.vllm_model")
"""What has the library's classes as its bases."""


def backend_of(kind: str) -> str:
    return kind.split()[0]


def conversions(directory: Path, bundle: Path = TINY) -> Path:
    """The reduced model in the forms that are served; returns the Hugging Face form."""
    for target in ("hf", "vllm"):
        convert(bundle, target, Precision.FLOAT32, directory / target)
    return directory / "hf"


@contextlib.contextmanager
def library(
    kind: str, monkeypatch: pytest.MonkeyPatch, version: str | None = None, own_process: str = "1"
) -> Iterator[None]:
    """As on a machine with a GPU and this library. own_process: 0, and TensorRT-LLM runs the engine
    in another process.
    """
    kind = backend_of(kind)
    modules = (
        fake_vllm.modules(version or "0.19.0")
        if kind == "vllm"
        else {kind: fake_tensorrt_llm.module(version or "1.2.0")}
    )
    for name, module in modules.items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(
        vllm_plugin,
        "entry_points",
        lambda group: [EntryPoint("cosyserve", "services.llm.hosted.vllm.vllm_plugin:register", group)],
    )
    monkeypatch.setattr(installed_libraries, "visible_gpus", lambda: [GPU])
    monkeypatch.setattr(vllm_backend, "gpus", lambda: [Gpu(GPU["gpu"], (8, 9), GPU["driver"], 24 << 10, 24 << 10)])
    monkeypatch.setenv("TLLM_WORKER_USE_SINGLE_PROCESS", own_process)
    installed = modules[kind].__dict__["__version__"]
    monkeypatch.setattr(
        installed_libraries,
        "library_versions",
        lambda *names: library_versions(*names) | ({kind: installed} if kind in names else {}),
    )
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


def load(kind: str, converted: Path, **changes: Any) -> HostedBackend:
    """By the loader of the service."""
    from services.llm.loading import load_backend

    faults = changes.pop("on_fault", None)
    served = converted.with_name("vllm") if kind == "vllm embeddings" else converted
    return load_backend(settings(backend=backend_of(kind), device="auto", converted=served, **changes), faults)


@contextlib.asynccontextmanager
async def hosted(
    kind: str, monkeypatch: pytest.MonkeyPatch, converted: Path, **changes: Any
) -> AsyncIterator[HostedBackend]:
    with library(kind, monkeypatch):
        backend = load(kind, converted, **changes)
        try:
            yield backend
        finally:
            await backend.close()


def host(backend: HostedBackend) -> Any:
    """The library's own object."""
    return backend._runtime._engine


def engine_of(backend: HostedBackend) -> StepEngine:
    return host(backend).engine


def first_row(backend: HostedBackend) -> int:
    """Of speech in the head's logits."""
    prompt_format = getattr(backend._runtime, "_prompt_format", None)
    return prompt_format.first if prompt_format else backend._vocabulary.text_ids
