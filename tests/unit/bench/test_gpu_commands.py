"""What `make bench-gpu` calls understands how it is called."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import gpu_llm, load_soak, offline, serving
from bench.gpu import lengths, prepare
from bench.gpu.parts import Plan, parts
from bench.parts.kept import Kept

MAINS: dict[str, Callable[[], Any]] = {
    "bench.gpu.prepare": prepare.main, "bench.gpu.lengths": lengths.main, "bench.gpu_llm": gpu_llm.main, "bench.serving": serving.main,
    "bench.load_soak": load_soak.main, "bench.offline": offline.main,
}  # fmt: skip


def test_every_command_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def note(name: str, made: Any = None) -> Callable[..., Any]:
        return lambda *_: called.append(name) or made

    def waited(name: str, made: Any = None) -> Callable[..., Any]:
        async def call(*_: Any) -> Any:
            return note(name, made)()

        return call

    async def soaked(told: Namespace, kept: Kept) -> None:
        called.append(f"soak {told.streams} {told.minutes:g}")
        kept.update(seconds=480.0, heard_out=1, hung_up=1, failed=0, errors={}, slopes={}, by_requests={"llm.0": 0.0}, samples={})

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(gpu_llm, "ceilings", note("ceilings", {"read_terabytes_per_second": 4.0}))
    for module, name in ((prepare, "model"), (prepare, "llm"), (gpu_llm, "steps"), (gpu_llm, "speed"), (gpu_llm, "same")):
        monkeypatch.setattr(module, name, note(name, {}))
    monkeypatch.setattr(lengths, "measure", waited("lengths"))
    monkeypatch.setattr(serving, "run", waited("serving", []))
    monkeypatch.setattr(offline, "measure", waited("offline"))
    monkeypatch.setattr(load_soak, "soak", soaked)
    for part in parts(Plan(tmp_path, tmp_path / "model", 150_000_000_000)):
        for line in part.commands:
            if line[1] != "bench.gpu_token2wav":
                monkeypatch.setattr("sys.argv", list(line[1:]))
                assert not MAINS[line[1]](), part.name
    counts = {name: called.count(name) for name in called}
    assert counts == {
        "model": 1, "llm": 3, "ceilings": 4, "steps": 1, "speed": 1, "lengths": 1, "same": 1, "serving": 4, "offline": 2, "soak 32 8": 1,
    }  # fmt: skip
