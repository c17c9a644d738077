"""The ways of both processes on a GPU, walked through with a device that does nothing: what each
one sets, and that it is set back.
"""

import contextlib
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

from bench.gpu import prepare
from bench.gpu.llm import random_sentences, tuning
from bench.gpu.sharing import passes
from bench.gpu.sharing.decoding import Speaker
from bench.gpu.sharing.passes import PagedPasses
from bench.gpu.sharing.rows import AHEAD, APART, COLD, EARLY, HIGH, MEETING, NORMAL, ONE, ROWS, SEVERAL
from bench.gpu.token2wav import random_models
from services.llm.gpu import decode, factory, runner
from services.llm.gpu.tuning import TABLE
from services.token2wav.gpu.paged_flow.flow import PagedFlow, Way
from services.token2wav.gpu.paged_flow.unit_table import Unit
from tests.unit.token2wav.gpu.small_flow import SMALL, random_tensors
from tests.unit.token2wav.speaking import GOLDEN


class Event:
    def __init__(self, **_: bool) -> None:
        self.at = 0

    def record(self) -> None:
        self.at += 1

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "Event") -> float:
        return 12.5


def test_each_way_of_the_speech_token_model_has_an_engine_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    engines: list[tuple[int, int, int]] = []

    def started(*_: Any, **told: Any) -> Any:
        engines.append((runner.PRIORITY, TABLE[1].pdl, TABLE[1].gated.rows))
        assert told["device"] == torch.device("cuda")
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(random_sentences, "random_model", lambda *, ends: object())
    monkeypatch.setattr(factory, "start_engine", started)
    before = runner.PRIORITY, TABLE[1]
    speaker = Speaker("cuda", GOLDEN)
    ways = (HIGH, NORMAL, EARLY, SEVERAL)
    assert len({id(speaker.engine(way)) for way in (*ways, *ways)}) == len(ways)
    assert engines == [(-1, 2, 1), (0, 2, 1), (-1, 1, 1), (-1, 2, 16)]
    assert (runner.PRIORITY, TABLE[1]) == before
    assert {row.llm.way for row in ROWS if row.llm} == set(ways)
    speaker.close()


def test_each_way_of_a_pass_has_graphs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[Any] = []
    captured: list[tuple[int, Any]] = []
    ran: list[list[Unit]] = []

    @contextlib.contextmanager
    def on(stream: Any) -> Any:
        streams.append(stream)
        yield

    def capture(self: PagedFlow, ways: tuple[Way, ...]) -> float:
        assert ways == (Way.SHORT,)
        captured.append((self._estimator.transformer_buffers.barrier_units, torch.cuda.graph.default_capture_stream))
        return 0.0

    fakes = {
        "Event": Event,
        "Stream": lambda device, priority: f"stream {priority}",
        "stream": on,
        "synchronize": lambda *_: None,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(random_models, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(random_models, "PUBLISHED", SMALL)
    monkeypatch.setattr(random_models, "random_flow", lambda *_: random_tensors(SMALL))
    monkeypatch.setattr(PagedFlow, "_barrier_units", lambda self: 2)
    monkeypatch.setattr(PagedFlow, "capture", capture)
    monkeypatch.setattr(PagedFlow, "run", lambda self, units: ran.append(units))
    monkeypatch.setattr(passes, "LEAST", 2)
    paged = PagedPasses()
    for way, units in ((MEETING, ONE), (MEETING, COLD), (APART, ONE), (AHEAD, ONE), (AHEAD, COLD)):
        ran.clear()
        assert passes.answer(paged, {"way": way, "units": units, "seconds": 0.0}) == {"ms": [12.5, 12.5]}
        assert [unit.position for unit in ran[-1]] == list(range(COLD - units, COLD))
        assert [unit.pages for unit in ran[-1]] == [list(range(1, at + 2)) for at in range(COLD - units, COLD)]
    assert captured == [(2, None), (0, None), (2, "stream -1")]
    assert streams == ["stream -1"] * 2
    assert torch.cuda.graph.default_capture_stream is None
    assert {row.way for row in ROWS} == {MEETING, APART, AHEAD}


def test_what_only_this_part_runs_is_compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    def step(model: Any, memory: Any, rows: int, blocks: Any) -> Any:
        assert rows == 1
        return SimpleNamespace(launch=lambda: compiled.append((blocks.pdl, blocks.gated.rows)))

    monkeypatch.setattr(tuning, "model_on", lambda *_: object())
    monkeypatch.setattr(tuning, "filled", lambda *_: object())
    monkeypatch.setattr(decode, "DecodeStep", step)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr("sys.argv", ["prepare", "sharing"])
    prepare.main()
    assert compiled == [(1, 1), (2, 16)]
