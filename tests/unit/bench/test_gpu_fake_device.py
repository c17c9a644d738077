"""What `make bench-gpu` runs on a GPU, walked through with a device that does nothing and models
that are small: a name that is wrong costs an hour of a GPU. What a part keeps is what the report
looks for.
"""

import contextlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

from bench.gpu import kernels, stage_tables
from bench.gpu.parts import VOCODER_SHARDS, Plan, parts
from bench.gpu.timing import LowerBounds
from bench.gpu.token2wav import __main__ as command
from bench.gpu.token2wav import decoder, flow, random_models, vocoder
from services.token2wav.gpu.paged_flow.flow import PagedFlow
from services.token2wav.gpu.windowed_vocoder.networks import HIFT
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder
from tests.unit.token2wav.gpu.small_flow import SMALL, random_tensors
from tests.unit.token2wav.gpu.test_windowed_vocoder import small

ROOM = 150_000_000_000
IDLE = Mock()
EVENT = Mock(**{"elapsed_time.return_value": 12.5})
"""All work takes so many milliseconds."""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda without a device: graphs hold nothing; models are small and on the CPU."""
    fakes: dict[str, Any] = {
        "Event": lambda **_: EVENT,
        "CUDAGraph": lambda: IDLE, "graph_pool_handle": lambda: None, "synchronize": lambda *_: None,
        "current_stream": lambda *_: IDLE, "memory_allocated": lambda: 0, "empty_cache": lambda: None,
        "mem_get_info": lambda *_: (ROOM, ROOM),
    }  # fmt: skip
    monkeypatch.setattr(kernels, "keep", lambda: None)
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    smaller = {
        "DEVICE": torch.device("cpu"),
        "PUBLISHED": SMALL,
        "random_flow": lambda *_: random_tensors(SMALL),
        "random_vocoder": lambda *_: (HIFT, *small(HIFT)),
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
    assert len(stage_tables.windows(results)) == 14
    assert results["mel"].keys() >= {"bfloat16", "bfloat16, two streams", "bfloat16, a product a launch"}
    assert len(results["samples"]) == 4
    assert len(stage_tables.correctness(results)) == 3 + len(results["mel"]) + 2 + 4
