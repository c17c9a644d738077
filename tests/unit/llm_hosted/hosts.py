"""The hosted backends on their fake libraries, and what a test may do to the engine below."""

import contextlib
import importlib.machinery
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cosyserve import gpu_facts
from services.llm import rungs
from services.llm.hosted_backend import HostedBackend
from tests.unit.llm.tiny_llm import settings
from tests.unit.llm_hosted import fake_tensorrt_llm, fake_vllm
from tests.unit.llm_hosted.step_engine import StepEngine

GPU = {"gpu": "NVIDIA L4", "compute_capability": "8.9", "driver": "570.86"}
KINDS = ("tensorrt_llm", "vllm")


@contextlib.contextmanager
def library(kind: str, monkeypatch: pytest.MonkeyPatch, version: str | None = None) -> Iterator[None]:
    """As on a machine with a GPU and this library."""
    found = fake_vllm.modules(version or "0.19.0") if kind == "vllm" else {kind: fake_tensorrt_llm.module(version or "1.2.0")}
    for name, module in found.items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "services.llm.vllm_processor", raising=False)
    monkeypatch.setattr(rungs, "visible_gpus", lambda: [GPU])
    real = gpu_facts.library_versions
    told = found[kind].__dict__["__version__"]
    monkeypatch.setattr(rungs, "library_versions", lambda *names: real(*names) | ({kind: told} if kind in names else {}))
    yield
    sys.modules.pop("services.llm.vllm_processor", None)


def load(kind: str, converted: Path, **changes: Any) -> HostedBackend:
    """By the loader of the service."""
    from services.llm.backend import load_backend

    faults = changes.pop("on_fault", None)
    made = load_backend(settings(backend=kind, device="auto", converted=converted, **changes), faults)
    assert isinstance(made, HostedBackend)
    return made


@contextlib.asynccontextmanager
async def hosted(kind: str, monkeypatch: pytest.MonkeyPatch, converted: Path, **changes: Any) -> AsyncIterator[HostedBackend]:
    with library(kind, monkeypatch):
        backend = load(kind, converted, **changes)
        try:
            yield backend
        finally:
            await backend.close()


def host(backend: HostedBackend) -> Any:
    """The library's own object."""
    runtime: Any = backend._runtime
    return runtime._llm if hasattr(runtime, "_llm") else runtime._engine


def engine_of(backend: HostedBackend) -> StepEngine:
    found: StepEngine = host(backend).engine
    return found
