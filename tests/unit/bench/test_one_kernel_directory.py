"""Both services and the bench of a GPU keep their kernels in one directory, by one setting."""

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

from bench.gpu import kernels
from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.model_directory import ModelDirectory
from services.llm.backends import torch_backend as llm
from services.llm.engine.scheduler import Limits
from services.llm.engine.weights import ServedModel
from services.token2wav import torch_backend as token2wav
from services.token2wav.decoders.backend import EngineSettings
from tests.unit.llm.tiny_llm import settings
from tests.unit.token2wav.speaking import TINY

CUDA = torch.device("cuda", 0)
ELSEWHERE = "/of/another/program"


class Loading(Exception):
    """The engine begins to load."""


def stop(*_: Any, **__: Any) -> None:
    raise Loading


def loading_llm(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    monkeypatch.setattr(ServedModel, "load", stop)
    wanted = settings(device="cuda", **changes)
    served = ServedModel.read(TINY)
    with pytest.raises(Loading):
        llm._fused_engine(served, wanted, Limits(running=1, waiting=1), CUDA, invariant=False, on_fault=None)


def loading_token2wav(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    monkeypatch.setattr(token2wav, "check_device", lambda device: None)
    monkeypatch.setattr("services.token2wav.gpu.backend.load_paged", stop)
    unused: Any = None
    wanted = EngineSettings(model=TINY, device="cuda", **changes)
    with pytest.raises(Loading):
        token2wav._paged(ModelDirectory(TINY), CUDA, wanted, unused, unused)


def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.keep()


STARTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    loading_llm,
    lambda patch: loading_llm(patch, max_sequences=8, max_positions=1_024, gpu_precision="float32"),
    loading_token2wav,
    lambda patch: loading_token2wav(patch, state_bytes=1 << 30, gpu_vocoder="windowed"),
    bench,
]


def test_all_of_them_name_the_same_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setenv("COSYSERVE_CACHE_DIR", str(tmp_path))
    for start in STARTS:
        monkeypatch.setenv("TRITON_CACHE_DIR", ELSEWHERE)
        start(monkeypatch)
        (kept,) = (tmp_path / "kernels").iterdir()
        assert os.environ["TRITON_CACHE_DIR"] == str(kept)
    facts = json.loads((kept / "key.json").read_text())
    assert facts.keys() == {"gpu", "capability", "torch", "triton", "driver"}
    assert facts["torch"] == torch.__version__
    assert facts["triton"]


def test_a_device_that_is_unsuitable_leaves_the_setting_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", ELSEWHERE)
    monkeypatch.setattr(token2wav, "check_device", lambda device: (_ for _ in ()).throw(Unsuitable("an old GPU")))
    unused: Any = None
    with pytest.raises(Unsuitable):
        token2wav._paged(ModelDirectory(TINY), CUDA, EngineSettings(model=TINY), unused, unused)
    assert os.environ["TRITON_CACHE_DIR"] == ELSEWHERE
