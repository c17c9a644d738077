"""What the tests of the engines share: the golden model's graphs in a cache, and backends over
them.
"""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cosyserve.engines.engine_cache import EngineCache
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.engines.artifacts import CachedEngines, graph_file, plan_file, plan_key
from services.token2wav.engines.backend import assemble
from services.token2wav.engines.runtime import Engine
from services.token2wav.engines.shapes import Profile
from services.token2wav.loading import load_backend
from tests.unit.token2wav.engines import fake_tensorrt
from tests.unit.token2wav.speaking import TINY
from tools.model.export import export
from tools.model.graphs.graph import Precision
from tools.model.graphs.tensorrt_plan import PlanOptions, build_plan

CPU = torch.device("cpu")
MACHINE = {"gpu": "a test", "compute_capability": "9.0", "tensorrt": fake_tensorrt.__version__, "driver": "none"}


def settings(cache: Path, **changed: Any) -> EngineSettings:
    return EngineSettings(**({"model": TINY, "threads": 1, "engines": cache, "widest_step": 4} | changed))


def onnx_backend(cache: Path, **changed: Any) -> Backend:
    """The exported graphs by ONNX Runtime."""
    given = settings(cache, **changed)
    assert given.weights is not None
    export(given.weights, EngineCache(cache), Precision(given.engine_precision))
    return load_backend("onnxruntime", given)


def fake_trt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `import tensorrt` return the fake."""
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt)
    fake_tensorrt.record.clear()


class Gpu:
    """A device that says it is a GPU; what is asked of torch goes to the CPU."""

    type = "cuda"
    index = 0


def pretend_gpu(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Over the fake tensorrt; modules: find this device, whatever its name, and MACHINE."""
    fake_trt(monkeypatch)
    for module in modules:
        monkeypatch.setattr(module, "device_of", lambda name: Gpu())
        monkeypatch.setattr(module, "machine_facts", lambda device, version: MACHINE | {"tensorrt": version})
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())


def plan_arguments(engines: Path, *more: str, model: Path = TINY) -> list[str]:
    """What builds and verifies a golden model's plans."""
    return [str(model), "--engines", str(engines), "--precision", "fp32", "--streams", "4", *more]


def trt_backend(cache: Path, **changed: Any) -> Backend:
    """`services.token2wav.engines.tensorrt` over the fake, on the CPU; plans are built as the tool
    builds them.
    """
    from services.token2wav.engines.tensorrt import TensorRTEngine

    given, engines = settings(cache, **changed), EngineCache(cache)
    assert given.weights is not None
    export(given.weights, engines, Precision(given.engine_precision))

    def load(component: str, stored: CachedEngines, built: Sequence[Profile]) -> Engine:
        def build(directory: Path) -> None:
            plan = build_plan(stored.graphs.file(graph_file(component)), built, PlanOptions())
            (directory / plan_file(component)).write_bytes(plan)

        plan = engines.obtain(plan_key(component, stored.graphs.key, MACHINE, built), build)
        return TensorRTEngine(component, plan.file(plan_file(component)), CPU, built)

    return assemble(given.weights, given, CPU, "tensorrt", load)
