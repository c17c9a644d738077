"""What `make bench-gpu` calls understands how it is called."""

import importlib
import inspect
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import create_autospec

import pytest
import torch

from bench.gpu import kernels
from bench.gpu.llm import __main__ as gpu_llm
from bench.gpu.parts import SOAK_STREAMS, Plan, parts
from bench.parts.part import ResultsFile

WORK = ("model", "llm", "steps", "one_launch", "speed", "same", "measure", "run", "soak")
"""Functions that a command calls when it has understood."""


def commanded(name: str) -> ModuleType:
    """What `python -m name` runs."""
    spec = find_spec(name)
    return importlib.import_module(f"{name}.__main__" if spec and spec.submodule_search_locations else name)


def test_every_command_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[str, Any] = {}

    async def soaked(options: Any, results: ResultsFile) -> None:
        assert (options.streams, options.minutes) == (SOAK_STREAMS, 8)
        results.update(
            seconds=480.0,
            heard_out=1,
            hung_up=1,
            failed=0,
            errors={},
            slopes={},
            by_requests={"llm.0": 0.0},
            samples={},
        )

    commands = [line for part in parts(Plan(tmp_path, tmp_path / "model", 150_000_000_000)) for line in part.commands]
    modules = {line[1]: commanded(line[1]) for line in commands if line[1] != "bench.gpu.token2wav"}
    for name, module in modules.items():
        for work in vars(module).keys() & set(WORK):
            function = getattr(module, work)
            fake = create_autospec(function, return_value=[] if inspect.iscoroutinefunction(function) else {})
            called[f"{name} {work}"] = fake
            monkeypatch.setattr(module, work, fake)
    called["bench.load_soak soak"].side_effect = soaked
    monkeypatch.setattr(gpu_llm, "ceilings", lambda: {"read_terabytes_per_second": 4.0})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(kernels, "keep", lambda: None)
    for line in commands:
        if line[1] in modules:
            monkeypatch.setattr("sys.argv", list(line[1:]))
            modules[line[1]].main()
    assert {name: fake.call_count for name, fake in called.items()} == {
        "bench.gpu.prepare model": 1, "bench.gpu.prepare llm": 3, "bench.gpu.llm steps": 1,
        "bench.gpu.llm one_launch": 1, "bench.gpu.llm speed": 1, "bench.gpu.llm same": 1,
        "bench.gpu.lengths measure": 1, "bench.serving run": 5, "bench.serving measure": 0,
        "bench.offline measure": 2, "bench.load_soak soak": 1,
    }  # fmt: skip
