"""Sentences in batches: the tokens of a batch are made at once, and what is told follows from what
was measured.
"""

import argparse
from pathlib import Path

import pytest

from bench.offline import measure
from bench.parts.part import ResultsFile
from bench.reports.offline_table import Cost, row


def test_the_factor_is_all_seconds_by_audio() -> None:
    cost = Cost("fast", 8, 16, 50.0, 0.5, 1.5)
    assert (cost.total, cost.real_time_factor) == (2.0, pytest.approx(0.04))
    assert row(cost) == "| fast | 8 | 16 | 50.0 | 0.50 | 1.50 | 2.00 | 0.0400 |"


async def test_a_batch_of_the_bundled_model_is_spoken(tmp_path: Path) -> None:
    options = argparse.Namespace(model=Path("models/demo"), device="cpu", engines="readable", batches=[2], sentences=1)
    await measure(options, ResultsFile(tmp_path / "offline.json"))
    cost = Cost(**ResultsFile(tmp_path / "offline.json")["2"])
    assert (cost.batch, cost.sentences) == (2, 2)
    assert 3.0 < cost.audio < 12.0
    assert min(cost.llm, cost.token2wav) > 0
