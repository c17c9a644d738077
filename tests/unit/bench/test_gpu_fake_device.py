"""What `make bench-gpu` runs on a GPU, walked through with a device that does nothing and models
that are small: a name that is wrong costs an hour of a GPU. What a part keeps is what the report
looks for; what a way of sharing sets is set back.
"""

import contextlib
import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

from bench.gpu import prepare, stage_tables
from bench.gpu.llm import decode_steps, random_sentences
from bench.gpu.parts import VOCODER_SHARDS, Plan, parts
from bench.gpu.sharing import passes
from bench.gpu.sharing.decoding import Speaker
from bench.gpu.sharing.passes import PagedPasses
from bench.gpu.sharing.rows import AHEAD, APART, COLD, EARLY, HIGH, MEETING, NORMAL, ONE, ROWS, SEVERAL
from bench.gpu.timing import LowerBounds
from bench.gpu.token2wav import __main__ as command
from bench.gpu.token2wav import decoder, flow, random_models, vocoder
from services.llm.gpu import decode, factory, runner
from services.llm.gpu.tuning import TABLE
from services.token2wav.gpu.paged_flow.flow import PagedFlow, Way
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder
from tests.unit.token2wav.gpu.small_flow import SMALL, random_tensors
from tests.unit.token2wav.gpu.test_windowed_vocoder import small

ROOM = 150_000_000_000
IDLE = SimpleNamespace(replay=lambda: None, synchronize=lambda: None)


class Event:
    """All work takes 12.5 ms."""

    def __init__(self, **_: bool) -> None:
        pass

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "Event") -> float:
        return 12.5


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda without a device: graphs hold nothing; models are small and on the CPU."""
    fakes: dict[str, Any] = {
        "Event": Event, "CUDAGraph": lambda: IDLE, "graph_pool_handle": lambda: None, "synchronize": lambda *_: None,
        "current_stream": lambda *_: IDLE, "memory_allocated": lambda: 0, "empty_cache": lambda: None,
        "mem_get_info": lambda *_: (ROOM, ROOM),
    }  # fmt: skip
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    smaller = {
        "DEVICE": torch.device("cpu"),
        "PUBLISHED": SMALL,
        "random_flow": lambda *_: random_tensors(SMALL),
        "random_vocoder": small,
        "filled": lambda weights, pages, buckets: PagedFlow(SMALL, weights, pages=2, buckets=buckets),
    }
    for module in (random_models, decoder, flow, vocoder):
        for name in smaller.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, smaller[name])


@pytest.mark.usefixtures("device")
def test_what_the_parts_keep_is_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(PagedFlow, "_launch", lambda *_: None)
    monkeypatch.setattr(WindowedVocoder, "_render", lambda *_: None)
    for part in parts(Plan(tmp_path, tmp_path / "model", ROOM)):
        for line in part.commands:
            if line[1] == "bench.gpu.token2wav" and line[-1] not in VOCODER_SHARDS[1:]:
                monkeypatch.setattr("sys.argv", list(line[1:]))
                command.main()
    results = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert sorted(results) == ["flow", "mel", "readable", "recompute", "samples", "vocoder"]
    ceilings = {"read_terabytes_per_second": 4.0, "bf16_teraflops": 800.0}
    rows = [line.split(" | ") for line in stage_tables.flow(results, LowerBounds(ceilings)) if line.startswith("| ")]
    # A head, six batches and two sentences that are longer; then a head, two first chunks and what
    # the readable path takes.
    assert [row[0].removeprefix("| ") for row in rows[1:9]] == ["1", "2", "4", "8", "16", "32", "64", "128"]
    assert len(rows) == 9 + 1 + 2 + 3
    assert len(stage_tables.windows(results)) == 12
    assert results["mel"].keys() >= {"bfloat16", "bfloat16, two streams", "bfloat16, a product a launch"}
    assert len(results["samples"]) == 4
    assert len(stage_tables.correctness(results)) == 3 + len(results["mel"]) + 2 + 4


def test_each_way_of_the_speech_token_model_has_an_engine_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    engines: list[tuple[int, int, int]] = []

    def started(*_: Any, **given: Any) -> Any:
        engines.append((runner.PRIORITY, TABLE[1].pdl, TABLE[1].gated.rows))
        assert given["device"] == torch.device("cuda")
        return object()

    monkeypatch.setattr(random_sentences, "random_model", lambda *, ends: object())
    monkeypatch.setattr(factory, "start_engine", started)
    before = runner.PRIORITY, TABLE[1]
    speaker, ways = Speaker(), (HIGH, NORMAL, EARLY, SEVERAL)
    assert len({id(speaker.engine(way)) for way in (*ways, *ways)}) == len(ways)
    assert engines == [(-1, 2, 1), (0, 2, 1), (-1, 1, 1), (-1, 2, 16)]
    assert (runner.PRIORITY, TABLE[1]) == before
    assert {row.llm.way for row in ROWS if row.llm} == set(ways)


@pytest.mark.usefixtures("device")
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

    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority: f"stream {priority}")
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(PagedFlow, "_barrier_units", lambda self: 2)
    monkeypatch.setattr(PagedFlow, "capture", capture)
    monkeypatch.setattr(PagedFlow, "run", lambda self, units: ran.append(units))
    monkeypatch.setattr(passes, "LEAST", 2)
    paged = PagedPasses()
    for way, units in ((MEETING, ONE), (MEETING, COLD), (APART, ONE), (AHEAD, ONE), (AHEAD, COLD)):
        ran.clear()
        assert paged.answer({"way": way, "units": units, "seconds": 0.0}) == {"ms": [12.5, 12.5]}
        assert [unit.position for unit in ran[-1]] == list(range(COLD - units, COLD))
        assert [unit.pages for unit in ran[-1]] == [list(range(1, at + 2)) for at in range(COLD - units, COLD)]
    assert captured == [(2, None), (0, None), (2, "stream -1")]
    assert streams == ["stream -1"] * 2
    assert torch.cuda.graph.default_capture_stream is None
    assert {row.way for row in ROWS} == {MEETING, APART, AHEAD}


@pytest.mark.usefixtures("device")
def test_what_only_sharing_runs_is_compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    def step(model: Any, memory: Any, rows: int, blocks: Any) -> Any:
        assert rows == 1
        return SimpleNamespace(launch=lambda: compiled.append((blocks.pdl, blocks.gated.rows)))

    monkeypatch.setattr(decode_steps, "published_model", object)
    monkeypatch.setattr(decode_steps, "filled", lambda *_: object())
    monkeypatch.setattr(decode, "DecodeStep", step)
    monkeypatch.setattr(
        PagedFlow,
        "_launch",
        lambda self, batch, way: compiled.append((batch, self._estimator.transformer_buffers.barrier_units)),
    )
    for what in ("steps", "passes"):
        monkeypatch.setattr("sys.argv", ["prepare", "sharing", what])
        prepare.main()
    assert compiled == [(1, 1), (2, 16), (1, 0), (2, 0), (4, 0)]
